//! Parquet: flat columns of numbers, truth values and words; tables of edges read and written.
//!
//! Nested columns, INT96 and fixed-length binary are not read. Memory: eight bytes a number.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use lacis_core::{Coo, Dataset, Error, Extent, Graph, Repeats, Result};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, FloatType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;

use super::write::{Cells, Holds, Sheet};
use super::{Column, Data, Table};
use crate::input::{check_count, open_file};
use crate::npy::Source;
use crate::own::{self, Tables};
use crate::scipy::settle;
use crate::{Job, note};

/// How many values are decoded at a time.
const BATCH: usize = 1 << 16;
/// Values that a file of some size is believed to hold: runs of the same value take no room.
const CELLS_PER_BYTE: u64 = 64;
const FREE_CELLS: u64 = 1 << 22;
/// As many bytes of words: a dictionary has each once.
const TEXT_PER_BYTE: u64 = 256;
const FREE_TEXT: u64 = 16 << 20;

/// Reads a table.
pub(crate) fn read(path: &Path, job: &Job<'_>) -> Result<Table> {
    // The crate has asserts of its own on damaged files: they are errors here.
    let read = std::panic::AssertUnwindSafe(|| read_columns(path, job));
    let outcome = std::panic::catch_unwind(read);
    outcome
        .unwrap_or_else(|_| Err(Error::file(path, "is damaged: its pages contradict each other")))
}

fn read_columns(path: &Path, job: &Job<'_>) -> Result<Table> {
    let damaged = |e: ParquetError| match e {
        ParquetError::External(e) => Error::file(path, format!("cannot be read: {e}")),
        e => Error::file(path, format!("is damaged: {e}")),
    };
    let (file, size) = open_file(path)?;
    let reader = SerializedFileReader::new(file).map_err(damaged)?;
    let meta = reader.metadata();
    // The crate asserts this, with words of its own on the terminal.
    let mut chunks = meta.row_groups().iter().flat_map(|group| group.columns());
    if chunks.any(|chunk| {
        chunk.data_page_offset() < 0
            || chunk.dictionary_page_offset().is_some_and(|at| at < 0)
            || chunk.compressed_size() < 0
    }) {
        return Err(Error::file(path, "is damaged: a column begins before the file"));
    }
    let rows = meta.row_groups().iter().map(|group| group.num_rows().max(0) as u64).sum::<u64>();
    let schema = meta.file_metadata().schema_descr();
    let cells = rows.saturating_mul(schema.num_columns() as u64);
    if cells > size.saturating_mul(CELLS_PER_BYTE).saturating_add(FREE_CELLS) {
        let (problem, columns) = ("are not believed of", schema.num_columns());
        let problem = format!("{rows} rows of {columns} columns {problem} {size} bytes");
        return Err(Error::file(path, problem));
    }
    let mut text_left = size.saturating_mul(TEXT_PER_BYTE).saturating_add(FREE_TEXT);
    let mut columns = Vec::new();
    for (at, described) in schema.columns().iter().enumerate() {
        let name = described.path().string();
        if described.max_rep_level() > 0 {
            let problem = format!("column '{name}' holds lists; numbers or words would be right");
            return Err(Error::file(path, problem));
        }
        let level = described.max_def_level();
        let mut filled = Filled { numbers: Vec::new(), words: None, text_left };
        for group in 0..reader.num_row_groups() {
            job.tick((at * reader.num_row_groups() + group) as u64, None)?;
            let group = reader.get_row_group(group).map_err(damaged)?;
            let wanted = group.metadata().num_rows().max(0) as usize;
            let column = group.get_column_reader(at).map_err(damaged)?;
            let before = filled.len();
            filled.add(column, level, wanted).map_err(damaged)?;
            if filled.len() - before != wanted {
                let problem = format!("column '{name}' has not the {wanted} rows of its group");
                return Err(Error::file(path, problem));
            }
        }
        text_left = filled.text_left;
        columns.push(filled.column(name));
    }
    if columns.is_empty() {
        return Err(Error::file(path, "has no columns"));
    }
    Ok(Table { columns })
}

/// A column under way: numbers, until something comes that they cannot hold.
struct Filled {
    numbers: Vec<f64>,
    words: Option<(Vec<u8>, Vec<u64>)>,
    /// How many more bytes of words are believed.
    text_left: u64,
}

impl Filled {
    fn len(&self) -> usize {
        self.words.as_ref().map_or(self.numbers.len(), |(_, ends)| ends.len())
    }

    fn column(self, name: String) -> Column {
        let data = match self.words {
            Some((text, ends)) => Data::Text { text, ends },
            None => Data::Numbers(self.numbers),
        };
        Column { name, data }
    }

    fn number(&mut self, number: f64) {
        match &mut self.words {
            Some((text, ends)) => {
                if !number.is_nan() {
                    text.extend_from_slice(number.to_string().as_bytes());
                }
                ends.push(text.len() as u64);
            }
            None => self.numbers.push(number),
        }
    }

    fn word(&mut self, word: Option<&[u8]>) {
        if self.words.is_none() {
            let numbers = std::mem::take(&mut self.numbers);
            self.words = Some((Vec::new(), Vec::new()));
            numbers.into_iter().for_each(|number| self.number(number));
        }
        if let Some((text, ends)) = &mut self.words {
            text.extend_from_slice(word.unwrap_or_default());
            ends.push(text.len() as u64);
        }
    }

    /// A whole number: as a word where a float cannot hold it.
    fn whole(&mut self, whole: Option<i64>) {
        match whole {
            Some(whole) if whole.unsigned_abs() > 1 << 53 => {
                self.word(Some(whole.to_string().as_bytes()));
            }
            _ => self.number(whole.map_or(f64::NAN, |whole| whole as f64)),
        }
    }

    fn add(
        &mut self,
        column: ColumnReader,
        level: i16,
        rows: usize,
    ) -> parquet::errors::Result<()> {
        let nan = f64::NAN;
        match column {
            ColumnReader::BoolColumnReader(r) => {
                each(r, level, rows, |x| self.number(x.map_or(nan, |&x| f64::from(u8::from(x)))))
            }
            ColumnReader::Int32ColumnReader(r) => {
                each(r, level, rows, |x| self.whole(x.map(|&x| i64::from(x))))
            }
            ColumnReader::Int64ColumnReader(r) => each(r, level, rows, |x| self.whole(x.copied())),
            ColumnReader::FloatColumnReader(r) => {
                each(r, level, rows, |x| self.number(x.map_or(nan, |&x| f64::from(x))))
            }
            ColumnReader::DoubleColumnReader(r) => {
                each(r, level, rows, |x| self.number(x.map_or(nan, |&x| x)))
            }
            ColumnReader::ByteArrayColumnReader(r) => {
                let mut too_much = false;
                each(r, level, rows, |x| {
                    let word = x.map(ByteArray::data).unwrap_or_default();
                    match self.text_left.checked_sub(word.len() as u64) {
                        Some(left) => self.text_left = left,
                        None => too_much = true,
                    }
                    self.word((!too_much).then_some(word));
                })?;
                let problem = "its words are longer than is believed of its size";
                if too_much { Err(ParquetError::General(problem.to_owned())) } else { Ok(()) }
            }
            _ => Err(ParquetError::General("a column of a type that is not read".to_owned())),
        }
    }
}

/// Hands over every value of a column, `None` where it is missing.
fn each<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    level: i16,
    rows: usize,
    mut take: impl FnMut(Option<&T::T>),
) -> parquet::errors::Result<()> {
    let (mut values, mut levels, mut done) = (Vec::new(), Vec::new(), 0);
    while done < rows {
        values.clear();
        levels.clear();
        let optional = (level > 0).then_some(&mut levels);
        let wanted = BATCH.min(rows - done);
        let (records, _, _) = reader.read_records(wanted, optional, None, &mut values)?;
        if records == 0 {
            break;
        }
        done += records;
        if level == 0 {
            values.iter().for_each(|value| take(Some(value)));
            continue;
        }
        let mut present = values.iter();
        levels.iter().for_each(|&at| take(if at == level { present.next() } else { None }));
    }
    Ok(())
}

/// Reads a table of edges as a graph: numbers are the nodes' numbers, words their ids.
pub(crate) fn read_graph(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let table = read(path, job)?;
    let [sources, targets] = ends(&table).ok_or_else(|| {
        Error::file(path, "has no two columns; 'source' and 'target' would be right")
    })?;
    if let Some(set) = numbered(path, &table, [sources, targets], job)? {
        return Ok(set);
    }
    drop(table);
    own::read(&Tables { edges: path.to_owned(), ..Tables::default() }, job)
}

/// The graph of a table whose ends are node numbers, as they stand; `None` where they are not.
fn numbered(
    path: &Path,
    table: &Table,
    ends: [&Column; 2],
    job: &Job<'_>,
) -> Result<Option<Dataset>> {
    let node = |&x: &f64| ((0.0..4e9).contains(&x) && x.fract() == 0.0).then_some(x as u32);
    let nodes = |column: &Column| match &column.data {
        Data::Numbers(numbers) => numbers.iter().map(node).collect::<Option<Vec<u32>>>(),
        Data::Text { .. } => None,
    };
    let weight = table.find(crate::edges::WEIGHT_NAMES);
    let weights = |column: &Column| match &column.data {
        Data::Numbers(numbers) => {
            let weights = numbers.iter().map(|&x| Some(x as f32).filter(|x| x.is_finite()));
            weights.collect::<Option<Vec<f32>>>()
        }
        Data::Text { .. } => None,
    };
    let weights = weight.map(weights);
    let (Some(sources), Some(targets)) = (nodes(ends[0]), nodes(ends[1])) else { return Ok(None) };
    let n = sources.iter().chain(&targets).max().map_or(0, |&largest| largest as usize + 1);
    if check_count("nodes", n, sources.len()).is_err() || matches!(weights, Some(None)) {
        return Ok(None);
    }
    let weights = weights.flatten();
    let source = Source::file(path, job);
    let coo = Coo::from_slices(&targets, &sources, weights.as_deref(), job.threads)?;
    drop((sources, targets));
    let repeats = if weights.is_some() { Repeats::Sum } else { Repeats::Merge };
    let extent = Extent { n_rows: Some(n), n_cols: Some(n) };
    let settled = settle(coo, extent, repeats, (&source, job.threads))?;
    let note = match weights {
        Some(_) => note::summed(settled.n_repeats),
        None => note::merged(settled.n_repeats),
    };
    let origin = lacis_core::Origin { notes: note.into_iter().collect(), ..Default::default() };
    Ok(Some(Dataset::new(crate::stem(path), Graph::new(settled.csr)).with_origin(origin)))
}

fn ends(table: &Table) -> Option<[&Column; 2]> {
    let named = [crate::edges::SOURCE_NAMES, crate::edges::TARGET_NAMES].map(|n| table.find(n));
    match named {
        [Some(source), Some(target)] => Some([source, target]),
        _ => Some([table.columns.first()?, table.columns.get(1)?]),
    }
}

fn compressed() -> Arc<WriterProperties> {
    let zstd = parquet::basic::Compression::ZSTD(Default::default());
    Arc::new(WriterProperties::builder().set_compression(zstd).build())
}

/// Writes a table, a group of rows at a time.
pub(crate) fn write_sheet(sheet: &Sheet<'_>, path: &Path, file: File) -> Result<()> {
    let refused = |e: ParquetError| Error::io("write", path, std::io::Error::other(e));
    // Names of columns are the user's: what is written as text would be taken apart at blanks.
    let field = |(name, holds): &(String, Holds)| {
        let (physical, logical) = match holds {
            Holds::Words => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Holds::Whole => (Physical::INT64, None),
            Holds::Numbers => (Physical::FLOAT, None),
        };
        let field = Type::primitive_type_builder(name, physical);
        let field = field.with_repetition(Repetition::REQUIRED).with_logical_type(logical);
        field.build().map(Arc::new).map_err(refused)
    };
    let fields = sheet.heads.iter().map(field).collect::<Result<Vec<_>>>()?;
    let schema = Type::group_type_builder("table").with_fields(fields).build().map_err(refused)?;
    let mut writer =
        SerializedFileWriter::new(file, Arc::new(schema), compressed()).map_err(refused)?;
    for group in sheet.groups() {
        let mut rows = writer.next_row_group().map_err(refused)?;
        for column in 0..sheet.heads.len() {
            let next = rows.next_column().map_err(refused)?;
            let mut to = next.expect("the schema has this column");
            let written = match (sheet.cells)(column, group.clone()) {
                Cells::Words(words) => {
                    let words: Vec<ByteArray> =
                        words.iter().map(|word| word.as_str().into()).collect();
                    to.typed::<ByteArrayType>().write_batch(&words, None, None)
                }
                Cells::Whole(whole) => to.typed::<Int64Type>().write_batch(&whole, None, None),
                Cells::Numbers(all) => to.typed::<FloatType>().write_batch(&all, None, None),
            };
            written.map_err(refused)?;
            to.close().map_err(refused)?;
        }
        rows.close().map_err(refused)?;
    }
    writer.close().map(drop).map_err(refused)
}

/// Writes the edges as a table of `source`, `target` and, if there are any, `weight`.
pub(crate) fn write(set: &Dataset, path: &Path, file: File, job: &Job<'_>) -> Result<()> {
    let refused = |e: ParquetError| Error::io("write", path, std::io::Error::other(e));
    let a = set.graph().adjacency();
    let weight = if a.values().is_some() { "required float weight;" } else { "" };
    let schema =
        format!("message edges {{ required int64 source; required int64 target; {weight} }}");
    let schema = Arc::new(parse_message_type(&schema).map_err(refused)?);
    let mut writer = SerializedFileWriter::new(file, schema, compressed()).map_err(refused)?;
    // A million edges a group: readers take groups apart.
    const GROUP: usize = 1 << 20;
    let mut first_row = 0;
    for group in (0..a.nnz().max(1)).step_by(GROUP) {
        job.tick(group as u64, Some(a.nnz() as u64))?;
        let entries = group..(group + GROUP).min(a.nnz());
        let mut targets: Vec<i64> = Vec::with_capacity(entries.len());
        while first_row < a.n_rows() && targets.len() < entries.len() {
            let row = a.row(first_row);
            let inside = row.end.min(entries.end).saturating_sub(row.start.max(entries.start));
            targets.extend(std::iter::repeat_n(first_row as i64, inside));
            if row.end > entries.end {
                break;
            }
            first_row += 1;
        }
        let sources: Vec<i64> = a.cols()[entries.clone()].iter().map(|&j| i64::from(j)).collect();
        let mut rows = writer.next_row_group().map_err(refused)?;
        for numbers in [&sources, &targets] {
            let column = rows.next_column().map_err(refused)?;
            let mut column = column.expect("the schema has these columns");
            column.typed::<Int64Type>().write_batch(numbers, None, None).map_err(refused)?;
            column.close().map_err(refused)?;
        }
        if let Some(values) = a.values() {
            let column = rows.next_column().map_err(refused)?;
            let mut column = column.expect("the schema has this column");
            let written = column.typed::<FloatType>().write_batch(&values[entries], None, None);
            written.map_err(refused)?;
            column.close().map_err(refused)?;
        }
        rows.close().map_err(refused)?;
    }
    writer.close().map(drop).map_err(refused)
}
