//! A split in a file of its own: `--split FILE`.
//!
//! ```text
//!  .csv .tsv .parquet   a row per item: its name or number, then train, val or test
//!  .json                {"train": [0, 5], "val": [...], "test": [...]}
//!  .npz                 train_mask, val_mask, test_mask: a truth value per item;
//!                       or train, val, test (or train_idx, ...): numbers of items
//!  .npy                 a number per item: 0 trains, 1 chooses, 2 judges, others do neither;
//!                       or a truth value per item: who trains, all others judge
//! ```
//! Items that no line names are in no part. `valid` and `validation` are `val` too.

use std::collections::HashMap;
use std::path::Path;

use lacis_core::{Dataset, Error, Place, Result, Split};

use crate::input::{Input, open_file};
use crate::npy::{Kind, Npy, Source};
use crate::npz::Npz;
use crate::{Job, table};

/// What a part is called in files.
const NAMES: [&[&str]; 3] =
    [&["train", "tr"], &["val", "valid", "validation", "va"], &["test", "te"]];

/// Reads a split of a data set's items.
///
/// # Errors
/// When the file is of no such form, names items that there are not, or one twice, or nobody
/// trains.
pub fn read(path: &Path, set: &Dataset, job: &Job<'_>) -> Result<Split> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let [train, val, test] = match ending {
        "npz" => of_npz(path, set, job)?,
        "npy" => of_npy(path, set, job)?,
        "json" => of_json(path, set)?,
        _ => of_table(path, set, job)?,
    };
    if train.is_empty() {
        return Err(Error::file(path, "nobody trains; some items must be in 'train'"));
    }
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("file").to_owned();
    let mut split = Split { name, train, val, test };
    for part in [&mut split.train, &mut split.val, &mut split.test] {
        part.sort_unstable();
    }
    // Joining a set checks that every item is there, and in one part.
    let checked = bare(set).with_split(split.clone());
    checked.map_err(|error| Error::file(path, error.to_string()))?;
    Ok(split)
}

/// The data set without the splits that it has.
fn bare(set: &Dataset) -> Dataset {
    let graph = Dataset::new(set.name(), set.graph().clone());
    match set.collection() {
        Some(of) => {
            graph.with_collection(of.clone()).expect("it was checked when the set was made")
        }
        None => graph,
    }
}

/// The part of a name.
fn part_of(name: &str) -> Option<usize> {
    NAMES.iter().position(|names| names.iter().any(|known| name.eq_ignore_ascii_case(known)))
}

/// Items by the names that the data has for them, or by number.
struct Items<'a> {
    names: Option<HashMap<&'a str, u32>>,
    count: usize,
}

impl<'a> Items<'a> {
    fn of(set: &'a Dataset) -> Self {
        let ids = set.ids().filter(|ids| ids.len() == set.n_items());
        let names = ids.map(|ids| ids.iter().enumerate().map(|(i, id)| (id, i as u32)).collect());
        Items { names, count: set.n_items() }
    }

    fn find(&self, text: &str) -> std::result::Result<u32, String> {
        let found = match &self.names {
            Some(names) => names.get(text).copied(),
            None => text.parse().ok().filter(|&item: &u32| (item as usize) < self.count),
        };
        found.ok_or_else(|| match &self.names {
            Some(_) => format!("there is no node called '{text}'"),
            None => format!("'{text}' is no item below {}", self.count),
        })
    }
}

fn of_table(path: &Path, set: &Dataset, job: &Job<'_>) -> Result<[Vec<u32>; 3]> {
    let table = table::read(path, job)?;
    let item = table.find(&["node", "id", "item", "graph", "node_id"]);
    let part = table.find(&["part", "split", "set", "role", "mask"]);
    let (item, part) = match (item.or(table.columns.first()), part.or(table.columns.get(1))) {
        (Some(item), Some(part)) if item.name != part.name => (item, part),
        _ => {
            let problem = format!("columns '{}'; 'node,part' would be right", table.names());
            return Err(Error::file(path, problem));
        }
    };
    let items = Items::of(set);
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    for row in 0..table.n_rows() {
        let at = |problem: String| Error::file_at(path, Place::Line(row as u64 + 2), problem);
        let Some(name) = part.text(row) else { continue };
        let which = part_of(&name).ok_or_else(|| {
            at(format!("'{name}' is no part; train, val and test are, or nothing"))
        })?;
        let found = items.find(&item.text(row).unwrap_or_default()).map_err(at)?;
        parts[which].push(found);
    }
    Ok(parts)
}

fn of_json(path: &Path, set: &Dataset) -> Result<[Vec<u32>; 3]> {
    let reader = std::io::BufReader::new(Input::open(path)?.unpacked(path)?);
    let lists: HashMap<String, Vec<serde_json::Value>> = serde_json::from_reader(reader)
        .map_err(|e| Error::file_at(path, Place::Line(e.line() as u64), e.to_string()))?;
    let items = Items::of(set);
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    for (name, list) in lists {
        let Some(which) = part_of(&name) else {
            let problem = format!("'{name}' is no part; train, val and test are");
            return Err(Error::file(path, problem));
        };
        for value in list {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            parts[which].push(items.find(&text).map_err(|problem| Error::file(path, problem))?);
        }
    }
    Ok(parts)
}

fn of_npz(path: &Path, set: &Dataset, job: &Job<'_>) -> Result<[Vec<u32>; 3]> {
    let mut npz = Npz::open(path, job)?;
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    for (names, part) in NAMES.iter().zip(&mut parts) {
        for name in *names {
            let mask = format!("{name}_mask");
            if npz.has(&mask) {
                let (shape, mask) = npz.with(&mask, |npy| npy.bools())?;
                part.extend(masked(path, &shape, &mask, set)?);
            }
            for list in [(*name).to_owned(), format!("{name}_idx"), format!("{name}_index")] {
                if npz.has(&list) {
                    part.extend(npz.vector::<u32>(&list)?.iter());
                }
            }
        }
    }
    Ok(parts)
}

/// The items that a mask has.
fn masked(path: &Path, shape: &[usize], mask: &[bool], set: &Dataset) -> Result<Vec<u32>> {
    if shape != [set.n_items()] {
        let wanted = set.n_items();
        let problem = format!("a mask of shape {shape:?}; one value for each of {wanted} is right");
        return Err(Error::file(path, problem));
    }
    Ok((0..).zip(mask).filter(|(_, set)| **set).map(|(item, _)| item).collect())
}

fn of_npy(path: &Path, set: &Dataset, job: &Job<'_>) -> Result<[Vec<u32>; 3]> {
    let file = std::io::BufReader::new(open_file(path)?.0);
    let npy = Npy::open(Source::file(path, job), file)?;
    if npy.header().dtype.kind == Kind::Bool {
        let (shape, mask) = npy.bools()?;
        let train = masked(path, &shape, &mask, set)?;
        let others: Vec<bool> = mask.iter().map(|trains| !trains).collect();
        return Ok([train, Vec::new(), masked(path, &shape, &others, set)?]);
    }
    let array = npy.numbers::<i32>()?;
    let of = |part: i32| -> Result<Vec<u32>> {
        let mask: Vec<bool> = array.data.iter().map(|&number| number == part).collect();
        masked(path, &array.shape, &mask, set)
    };
    Ok([of(0)?, of(1)?, of(2)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::{Graph, Threads};

    fn read_text(ending: &str, text: &[u8]) -> Result<Split> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("mine.{ending}"));
        std::fs::write(&path, text).unwrap();
        let set = Dataset::new("five", Graph::from_edges(5, &[(0, 1)]).unwrap());
        read(&path, &set, &Job::quiet(&Threads::one()))
    }

    fn parts(split: &Split) -> [&[u32]; 3] {
        [&split.train, &split.val, &split.test]
    }

    fn npy(descr: &str, items: &[u8]) -> Vec<u8> {
        let count = items.len();
        let head =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({count},), }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((head.len() as u16).to_le_bytes());
        bytes.extend(head.as_bytes());
        bytes.extend(items);
        bytes
    }

    #[test]
    fn every_form_says_the_same() {
        let expected: [&[u32]; 3] = [&[0, 3], &[4], &[1]];
        let table = b"node,part\n3,train\n0,TRAIN\n1,test\n2,\n4,valid\n";
        let json = br#"{"train": [3, "0"], "val": [4], "test": [1]}"#;
        let forms = [
            ("csv", table.to_vec()),
            ("json", json.to_vec()),
            ("npy", npy("|i1", &[0, 2, 255, 0, 1])),
        ];
        for (ending, bytes) in forms {
            let split = read_text(ending, &bytes).unwrap();
            assert_eq!(parts(&split), expected, "{ending}");
            assert_eq!(split.name, "mine");
        }
        let mask = read_text("npy", &npy("|b1", &[1, 0, 0, 1, 0])).unwrap();
        assert_eq!(parts(&mask), [&[0, 3][..], &[], &[1, 2, 4]]);
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let cases: [(&str, &[u8], &str); 6] = [
            ("csv", b"node,part\n9,train\n", "below 5"),
            ("csv", b"node,part\n1,teach\n", "teach"),
            ("csv", b"node,part\n1,train\n1,test\n", "both"),
            ("csv", b"node,part\n1,test\n", "nobody trains"),
            ("json", br#"{"train": [1], "dev": [2]}"#, "dev"),
            ("csv", b"node\n1\n", "node,part"),
        ];
        for (ending, text, word) in cases {
            let error = read_text(ending, text).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let short = read_text("npy", &npy("|b1", &[1, 0])).unwrap_err().to_string();
        assert!(short.contains("each of 5"), "{short}");
    }
}
