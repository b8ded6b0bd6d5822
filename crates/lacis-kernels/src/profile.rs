//! [`Profile`]: what was measured on a machine, and what follows from it.
//!
//! ```text
//!  a problem is a point:  class (format, weights, reduce, axis), k, n, bytes of x, degree
//!  near it:               samples of the nearest class, weighted by 1 / distance² in logarithms
//!  a kernel's cost:       weighted mean of the logarithms of its nanoseconds per unit of effort
//!  the choice:            the analytic one, unless another is cheaper by more than clocks are off;
//!                         equal costs go to the first name
//! ```
//! Where rows are gathered from all over an `x` that no cache holds, or from a few that one does
//! ([`gathers`]), and where none holds the result, the table's own rule decides: small samples
//! cannot show it.
//!
//! A profile is plain data: no file, no clock, no environment. The same profile and point give the
//! same choice, whatever the number of threads that will run it: decisions are made from the
//! section that was measured with the most.

mod gathers;
mod machine;
mod near;
mod tables;

use std::collections::BTreeMap;

use lacis_core::reference::Reduce;
use lacis_core::{DType, Error, Result};
use serde::{Deserialize, Serialize};

use crate::isa::Isa;

pub use gathers::{Gathers, gathers};
pub use machine::{Cache, Machine};
pub use tables::{TABLES, Table, table, tables_version};

/// The form of the file; another one cannot be read.
pub const SCHEMA: u32 = 1;

/// Everything measured on one machine. See the module's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`SCHEMA`] when it was made.
    pub schema: u32,
    /// Which tables of kernels were measured: [`tables_version`].
    pub tables: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Measurements, one section per number of threads, ascending.
    pub sections: Vec<Section>,
}

/// What was measured with one number of threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// How many threads.
    pub threads: usize,
    /// Memory, one item after another.
    #[serde(default)]
    pub stream: Option<Stream>,
    /// Memory, rows in random order.
    #[serde(default)]
    pub gather: Vec<Gather>,
    /// Kernels, by operation.
    #[serde(default)]
    pub ops: BTreeMap<String, Vec<Sample>>,
}

/// Sequential bandwidth of arrays that no cache holds, in GB/s, and what is done on the way. What
/// is not known is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Bytes read.
    pub read_gbps: f64,
    /// Bytes written.
    pub write_gbps: f64,
    /// Bytes read and bytes written.
    pub copy_gbps: f64,
    /// Bytes written for the first time: the system has to find and clear them.
    #[serde(default)]
    pub fresh_gbps: f64,
    /// Bytes read and written by an operation on each element of two arrays.
    #[serde(default)]
    pub each_gbps: f64,
    /// The same of arrays that the last cache holds.
    #[serde(default)]
    pub near_gbps: f64,
    /// Nanoseconds of an exponential, of many, on all threads.
    #[serde(default)]
    pub exp_ns: f64,
}

/// The rate at which rows are read in random order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gather {
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Bytes of all rows.
    pub set_bytes: usize,
    /// Bytes of rows read.
    pub gbps: f64,
}

/// A problem in the few numbers that decide which kernel is fastest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What the matrices are stored in.
    pub dtype: DType,
    /// Whether entries have values.
    #[serde(default)]
    pub weighted: bool,
    /// How many become one, where they do.
    #[serde(default, with = "reduce_name", skip_serializing_if = "Option::is_none")]
    pub reduce: Option<Reduce>,
    /// Along rows (0) or columns (1), where that is a choice.
    #[serde(default)]
    pub axis: usize,
    /// Columns of x; the inner size of a dense product.
    pub k: usize,
    /// The outer size of a dense product, else 0.
    #[serde(default)]
    pub n: usize,
    /// Bytes of x, from which rows are gathered.
    pub bytes: usize,
    /// Entries of a row on average, where there are entries.
    pub degree: f64,
    /// Units of work: entries, or rows where there are none. Time is in proportion.
    pub units: usize,
    /// How evenly gathered rows are spread over all: [`Gathers::spread`]; 0 where that is not
    /// known.
    #[serde(default)]
    pub spread: f64,
    /// From how many rows they come for a while: [`Gathers::window`]; 0 where that is not known.
    #[serde(default)]
    pub window: usize,
}

impl Point {
    /// A product of a matrix with `entries` entries in `n_rows` rows and an `x` of `n_cols` by `k`.
    pub fn sparse(shape: [usize; 3], k: usize, dtype: DType) -> Self {
        let [n_rows, n_cols, entries] = shape;
        let degree = entries as f64 / n_rows.max(1) as f64;
        let bytes = n_cols * k * size_of_dtype(dtype);
        let (weighted, reduce) = (false, Some(Reduce::Sum));
        Point {
            dtype,
            weighted,
            reduce,
            axis: 0,
            k,
            n: 0,
            bytes,
            degree,
            units: entries,
            spread: 0.0,
            window: 0,
        }
    }

    /// The same, of a matrix that was looked at.
    #[must_use]
    pub fn gathering(self, Gathers { spread, window }: Gathers) -> Self {
        Point { spread, window, ..self }
    }
}

/// Bytes of a number.
pub fn size_of_dtype(dtype: DType) -> usize {
    match dtype {
        DType::F32 => 4,
        DType::F64 => 8,
        DType::Bf16 => 2,
    }
}

/// What the kernels of an operation cost on one problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The problem.
    #[serde(flatten)]
    pub point: Point,
    /// Nanoseconds per unit, by kernel and instruction set: `spmm.csr.rows.v4/avx512`.
    pub ns: BTreeMap<String, f64>,
}

/// Which kernel to run, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Its name in its operation's table.
    pub kernel: &'static str,
    /// What to run it with.
    pub isa: Isa,
    /// Who says so.
    pub why: Why,
}

/// Why a kernel was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// It was the cheapest where it was measured.
    Measured {
        /// Expected nanoseconds per unit.
        ns: f64,
        /// How much cheaper than the next kernel: 1.2 is a fifth.
        margin: f64,
        /// How many samples that rests on.
        samples: usize,
    },
    /// Caches and the width decide: nothing near it was measured, or no sample can show it.
    Analytic,
}

/// Assumed of machines that nobody measured: bytes and products per nanosecond and core.
const UNMEASURED: [f64; 2] = [6.0, 20.0];

impl Profile {
    /// A machine of which nothing is known but what it is.
    pub fn unmeasured(machine: Machine) -> Self {
        Profile { schema: SCHEMA, tables: tables_version(), machine, sections: Vec::new() }
    }

    /// Whether decisions on this machine with these kernels may rest on it, or why not.
    ///
    /// # Errors
    /// [`Error::Argument`] that names what is different.
    pub fn check(&self, here: &Machine) -> Result<()> {
        let stale = |problem: String| Err(Error::argument("machine profile", problem));
        if self.schema != SCHEMA {
            return stale(format!("has form {}, this version reads {SCHEMA}", self.schema));
        }
        if &self.machine != here {
            return stale(format!("was measured on {}, this is {here}", self.machine));
        }
        if self.tables != tables_version() {
            return stale("was measured with other kernels than this version has".to_owned());
        }
        let costs = self.sections.iter().flat_map(|s| s.ops.values().flatten());
        if costs.flat_map(|sample| sample.ns.values()).any(|ns| !ns.is_finite() || *ns <= 0.0) {
            return stale("has a time that is not above zero".to_owned());
        }
        Ok(())
    }

    /// The section that decisions are made from: the one with the most threads.
    pub fn section(&self) -> Option<&Section> {
        self.sections.iter().max_by_key(|section| section.threads)
    }

    /// The samples of an operation that decisions are made from.
    pub fn samples(&self, op: &str) -> &[Sample] {
        // Another section may know an operation that the largest one does not.
        let known = self.sections.iter().filter_map(|s| Some((s.threads, s.ops.get(op)?)));
        match known.max_by_key(|(threads, _)| *threads) {
            Some((_, samples)) => samples,
            None => table(op).and_then(|table| table.like).map_or(&[], |op| self.samples(op)),
        }
    }

    /// Puts a section in its place; what it measured again replaces what was there.
    pub fn add(&mut self, section: Section) {
        let place = self.sections.binary_search_by_key(&section.threads, |s| s.threads);
        match place {
            Err(place) => self.sections.insert(place, section),
            Ok(place) => {
                let old = &mut self.sections[place];
                old.stream = section.stream.or(old.stream);
                if !section.gather.is_empty() {
                    old.gather = section.gather;
                }
                old.ops.extend(section.ops);
            }
        }
    }

    /// The kernel to run for a problem. Takes microseconds.
    ///
    /// # Panics
    /// When there is no such operation in [`TABLES`].
    pub fn choose(&self, op: &str, point: &Point) -> Choice {
        let table = of(op);
        let near = self.measured(table, point);
        let isa = near.map_or(Isa::best(), |choice| choice.isa);
        let analytic = |kernel| Choice { kernel, isa, why: Why::Analytic };
        if let Some(kernel) = (table.rule)(point, &self.machine) {
            return analytic(kernel);
        }
        near.unwrap_or_else(|| analytic((table.default)(point, &self.machine)))
    }

    /// What measurements nearby say.
    fn measured(&self, table: &Table, point: &Point) -> Option<Choice> {
        let default = (table.default)(point, &self.machine);
        near::cheapest(self.samples(table.op), point, (table, default))
    }

    /// How long the chosen kernel will take, in seconds.
    ///
    /// # Panics
    /// When there is no such operation in [`TABLES`].
    pub fn predict(&self, op: &str, point: &Point) -> f64 {
        let ns = match self.measured(of(op), point).map(|choice| choice.why) {
            Some(Why::Measured { ns, .. }) => ns,
            _ => {
                let [bytes, products] = UNMEASURED;
                let read = self.section().and_then(|s| s.stream).map_or(bytes, |s| s.read_gbps);
                (of(op).effort)(point) / if point.n == 0 { read } else { products }
            }
        };
        ns * 1e-9 * point.units as f64
    }
}

/// The table of an operation that must have one.
fn of(op: &str) -> &'static Table {
    table(op).unwrap_or_else(|| panic!("no table of kernels is called {op}"))
}

/// [`Reduce`] by its name.
mod reduce_name {
    use lacis_core::reference::Reduce;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(reduce: &Option<Reduce>, to: S) -> Result<S::Ok, S::Error> {
        match reduce {
            Some(reduce) => to.serialize_str(super::name_of(*reduce)),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Option<Reduce>, D::Error> {
        let Some(name) = Option::<String>::deserialize(from)? else { return Ok(None) };
        let found = Reduce::ALL.into_iter().find(|reduce| super::name_of(*reduce) == name);
        found.map(Some).ok_or_else(|| D::Error::custom(format!("'{name}' is no reduce")))
    }
}

/// What people call a reduce: `sum`.
pub fn name_of(reduce: Reduce) -> &'static str {
    match reduce {
        Reduce::Sum => "sum",
        Reduce::Mean => "mean",
        Reduce::Max => "max",
        Reduce::Min => "min",
        Reduce::Mul => "mul",
    }
}
