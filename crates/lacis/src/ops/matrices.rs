//! What makes a sparse matrix: `spgemm`, `transpose`, and `sort` and `coalesce` of a list of edges
//! in a made-up order.
//!
//! A row of the result is compared by a few numbers that depend on all of it ([`Marks`]): another
//! program can send those, and a row may be long.

use lacis_core::reference::{coalesce, sort, spgemm as true_spgemm, transpose};
use lacis_core::{Buffer, Threads};
use lacis_core::{Coo, Csr, CsrParts, DType, Dense, Error, Extent, Repeats, Result, RowPtr};
use lacis_kernels::profile::Point;
use lacis_kernels::{Isa, spgemm};

use super::numbers::Numbers;
use super::sample::spread;
use super::{Form, Operation, Problem, Sample, Setting, Volume};

pub(super) const SPGEMM: Operation = Operation {
    id: "spgemm",
    about: "the matrix times itself: walks of two edges",
    unit: "entry",
    wide: false,
    tuned: true,
    forms: &[Form::PLAIN, Form::WEIGHTED],
    outer: &[],
    prepare: |setting| boxed(setting, What::Product),
};

pub(super) const TRANSPOSE: Operation = Operation {
    id: "transpose",
    about: "edges turned around, by their new targets",
    tuned: false,
    prepare: |setting| boxed(setting, What::Transpose),
    ..SPGEMM
};

pub(super) const SORT: Operation = Operation {
    id: "sort",
    about: "a list of edges in any order, by target and source",
    tuned: false,
    prepare: |setting| boxed(setting, What::Sorted),
    ..SPGEMM
};

pub(super) const COALESCE: Operation = Operation {
    id: "coalesce",
    about: "the same, where edges repeat and their values are added",
    tuned: false,
    prepare: |setting| boxed(setting, What::Coalesced),
    ..SPGEMM
};

fn boxed<'a>(setting: &Setting<'a>, what: What) -> Result<Box<dyn Problem + 'a>> {
    match setting.form.dtype {
        DType::F32 => Ok(Box::new(Making::new(setting, what)?)),
        _ => Err(Error::argument("dtype", "must be f32: a sparse matrix's values are")),
    }
}

/// A product may have as many terms: its result twice fits in 16 GiB.
const MOST_PRODUCTS: usize = 1 << 30;
/// Terms of a sample: tens of milliseconds for the reference.
const SAMPLE_PRODUCTS: usize = 1 << 19;
/// Of so many edges one is in a list twice that is to be coalesced, unless copies are asked for.
const REPEATED: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Product,
    Transpose,
    Sorted,
    Coalesced,
}

/// Edges in a list.
#[derive(Default)]
struct List {
    rows: Vec<u32>,
    cols: Vec<u32>,
    values: Option<Vec<f32>>,
}

struct Making<'a> {
    what: What,
    a: Csr,
    /// What is sorted or coalesced.
    list: List,
    result: Option<Csr>,
    /// Products of a spgemm.
    products: usize,
    threads: &'a Threads,
}

impl<'a> Making<'a> {
    fn new(setting: &Setting<'a>, what: What) -> Result<Self> {
        let a = setting.matrix()?.without_order();
        let list = match what {
            What::Sorted | What::Coalesced => mixed(&a, what, setting.n),
            What::Product | What::Transpose => List::default(),
        };
        let mut making =
            Making { what, a, list, result: None, products: 0, threads: setting.threads };
        if what == What::Product {
            making.products = making.check_product()?;
        }
        Ok(making)
    }

    /// How many products the matrix times itself has.
    fn check_product(&self) -> Result<usize> {
        let (n, m) = (self.a.n_rows(), self.a.n_cols());
        if n != m {
            let problem = format!("has {n} rows and {m} columns; spgemm squares a square matrix");
            return Err(Error::argument("the graph", problem));
        }
        let all: usize = (0..n).map(|i| self.products_of(i)).sum();
        if all > MOST_PRODUCTS {
            let problem = format!(
                "has {all} walks of two edges, more than the {MOST_PRODUCTS} \
                                   that spgemm is measured with; a sparser one would do"
            );
            return Err(Error::argument("the graph", problem));
        }
        Ok(all)
    }

    fn products_of(&self, i: usize) -> usize {
        self.a.row_cols(i).iter().map(|&l| self.a.row(l as usize).len()).sum()
    }

    /// Rows of the product that the reference computes quickly: the longest that it does, and some.
    fn rows_of_product(&self) -> Vec<usize> {
        let n = self.a.n_rows();
        let mut left = SAMPLE_PRODUCTS;
        let mut rows: Vec<usize> = spread(n, 1);
        let most = (0..n).filter(|&i| self.products_of(i) <= left / 2);
        rows.extend(most.max_by_key(|&i| self.products_of(i)));
        rows.sort_unstable();
        rows.dedup();
        rows.sort_by_key(|&i| std::cmp::Reverse(self.products_of(i).min(SAMPLE_PRODUCTS / 2 + 1)));
        rows.retain(|&i| {
            let fits = self.products_of(i) <= left;
            left -= if fits { self.products_of(i) } else { 0 };
            fits
        });
        rows
    }

    /// The part of the input that some rows of the result come from, as a matrix: row or column
    /// `s` of it is `rows[s]`.
    fn part(&self, rows: &[usize]) -> Result<Csr> {
        let n = if self.what == What::Transpose { self.a.n_cols() } else { self.a.n_rows() };
        let mut place = vec![u32::MAX; n];
        rows.iter().enumerate().for_each(|(s, &row)| place[row] = s as u32);
        let wanted = |i: usize| Some(place[i]).filter(|s| *s != u32::MAX);
        let (mut lines, n_cols) = match self.what {
            What::Transpose => (vec![Vec::new(); self.a.n_rows()], rows.len()),
            _ => (vec![Vec::new(); rows.len()], self.a.n_cols()),
        };
        match self.what {
            What::Transpose => {
                for (i, j, v) in self.a.entries() {
                    wanted(j).into_iter().for_each(|s| lines[i].push((s, v)));
                }
            }
            What::Product => {
                for (line, &i) in lines.iter_mut().zip(rows) {
                    line.extend(self.a.row(i).map(|e| (self.a.cols()[e], self.a.value(e))));
                }
            }
            What::Sorted | What::Coalesced => {
                let List { rows, cols, values } = &self.list;
                for (e, &i) in rows.iter().enumerate() {
                    let value = values.as_ref().map_or(1.0, |values| values[e]);
                    let line = wanted(i as usize).map(|s| &mut lines[s as usize]);
                    line.into_iter().for_each(|line| line.push((cols[e], value)));
                }
            }
        }
        from_lines(&lines, n_cols)
    }

    /// What the reference makes of a part.
    fn truth(&self, part: &Csr) -> Result<Vec<(usize, usize, f64)>> {
        Ok(match self.what {
            What::Product => true_spgemm(part, &self.a)?,
            What::Transpose => transpose(part),
            What::Sorted => sort(part),
            What::Coalesced => coalesce(part),
        })
    }

    /// The same of magnitudes.
    fn absolute(&self) -> Result<Self> {
        let positive = |v: &[f32]| v.iter().map(|v| v.abs()).collect::<Vec<_>>();
        let values = self.a.values().map(|v| positive(v).into());
        let list = List {
            rows: self.list.rows.clone(),
            cols: self.list.cols.clone(),
            values: self.list.values.as_deref().map(positive),
        };
        let a = self.a.clone().with_values(values)?;
        Ok(Making { a, list, result: None, ..*self })
    }
}

/// The entries of a matrix in a made-up order; where they are to be coalesced, each of them
/// `copies` times, or some of them twice where that is 0.
fn mixed(a: &Csr, what: What, copies: usize) -> List {
    let again = (0..a.nnz()).filter(|e| e.is_multiple_of(REPEATED));
    let mut entries: Vec<usize> = match (what, copies) {
        (What::Coalesced, 0) => (0..a.nnz()).chain(again).collect(),
        (What::Coalesced, copies) => (0..copies).flat_map(|_| 0..a.nnz()).collect(),
        _ => (0..a.nnz()).collect(),
    };
    // Which number an entry gets depends on its place in this list, so that repeats part.
    let key = |at: usize| Numbers("order").at(at, 0);
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
    entries = order.into_iter().map(|at| entries[at]).collect();
    let mut row_of = vec![0; a.nnz()];
    (0..a.n_rows()).for_each(|i| row_of[a.row(i)].fill(i as u32));
    let ones = a.values().is_none() && what == What::Sorted;
    List {
        rows: entries.iter().map(|&e| row_of[e]).collect(),
        cols: entries.iter().map(|&e| a.cols()[e]).collect(),
        values: (!ones).then(|| entries.iter().map(|&e| a.value(e)).collect()),
    }
}

/// A matrix from its rows.
fn from_lines(lines: &[Vec<(u32, f32)>], n_cols: usize) -> Result<Csr> {
    let ends = lines.iter().scan(0, |end, line| {
        *end += line.len() as u64;
        Some(*end)
    });
    let row_ptr: Vec<u64> = std::iter::once(0).chain(ends).collect();
    let all = || lines.iter().flatten();
    let values: Buffer<f32> = all().map(|&(_, v)| v).collect::<Vec<_>>().into();
    let parts = CsrParts {
        n_cols,
        row_ptr: RowPtr::Wide(row_ptr.into()),
        cols: all().map(|&(j, _)| j).collect::<Vec<_>>().into(),
        values: Some(values),
        order: None,
    };
    Csr::new(parts, &Threads::one())
}

/// What a row is compared by: its length, the sums of its columns' and its values' made-up
/// multiples, and one that depends on the order of its entries.
struct Marks;

impl Marks {
    const COUNT: usize = 4;

    /// Adds the entry at place `e` of its row.
    fn add(marks: &mut [f64], (e, j, v): (usize, usize, f64), of: impl Fn(f64) -> f64) {
        let p = of(f64::from(Numbers("marks").at(j, 0)));
        let place = (e % 97 + 1) as f64;
        for (mark, more) in marks.iter_mut().zip([1.0, p, v * p, v * p * place]) {
            *mark += more;
        }
    }

    /// Of every row of a list of entries in order.
    fn of(n: usize, entries: &[(usize, usize, f64)], sign: impl Fn(f64) -> f64) -> Dense<f64> {
        let mut marks = Dense::zeros(n, Marks::COUNT);
        let (mut row, mut first) = (usize::MAX, 0);
        for (at, &(i, j, v)) in entries.iter().enumerate() {
            if i != row {
                (row, first) = (i, at);
            }
            Marks::add(marks.row_mut(i), (at - first, j, v), &sign);
        }
        marks
    }
}

impl Problem for Making<'_> {
    fn point(&self) -> Point {
        let shape = [self.a.n_rows(), self.a.n_cols(), self.a.nnz()];
        let weighted = self.a.values().is_some();
        Point { weighted, reduce: None, ..Point::sparse(shape, 0, DType::F32) }
    }

    fn volume(&self) -> Volume {
        let entry = 4 + 4 * usize::from(self.a.values().is_some());
        let rows = 4 * self.a.n_rows();
        let (bytes, flops) = match self.what {
            // Every product reads an entry; how many are written is not known before.
            What::Product => (self.products * entry + self.a.nnz() * entry + rows, self.products),
            What::Transpose => (2 * (self.a.nnz() * entry + rows), 0),
            What::Sorted | What::Coalesced => {
                (self.list.rows.len() * (2 * entry + 4) + rows, self.list.rows.len())
            }
        };
        Volume { bytes: bytes as f64, flops: flops as f64 }
    }

    fn run(&mut self, kernel: usize, _: Isa) -> Result<()> {
        let (a, threads) = (&self.a, self.threads);
        let listed = |repeats| {
            let List { rows, cols, values } = &self.list;
            let extent = Extent { n_rows: Some(a.n_rows()), n_cols: Some(a.n_cols()) };
            let coo = Coo::from_slices(rows, cols, values.as_deref(), threads)?;
            coo.into_csr(extent, repeats, threads)
        };
        self.result = Some(match self.what {
            What::Product => spgemm::KERNELS[kernel].run(a.view(), a.view(), threads)?,
            What::Transpose => a.transpose(threads),
            What::Sorted => listed(Repeats::Keep)?,
            What::Coalesced => listed(Repeats::Sum)?,
        });
        Ok(())
    }

    fn sample(&self) -> Result<Sample> {
        let degree = self.a.nnz() / self.a.n_rows().max(1) + 1;
        let rows = match self.what {
            What::Product => self.rows_of_product(),
            What::Transpose => spread(self.a.n_cols(), degree),
            What::Sorted | What::Coalesced => spread(self.a.n_rows(), degree),
        };
        let marks = |making: &Self, sign: fn(f64) -> f64| {
            let part = making.part(&rows)?;
            Ok::<_, Error>(Marks::of(rows.len(), &making.truth(&part)?, sign))
        };
        let (truth, magnitudes) = (marks(self, |x| x)?, marks(&self.absolute()?, f64::abs)?);
        // Lengths are exact, what only moves nearly so, sums of values are rounded in f32.
        let nearly = 1e-12;
        let rounding = |s: usize| match self.what {
            What::Transpose | What::Sorted => nearly,
            What::Product => (self.products_of(rows[s]) + 8) as f64 * f64::from(f32::EPSILON),
            What::Coalesced => 32.0 * f64::from(f32::EPSILON),
        };
        let tolerance = Dense::from_fn(rows.len(), Marks::COUNT, |s, mark| {
            let share = [0.0, nearly, rounding(s), rounding(s)][mark];
            share * magnitudes.at(s, mark)
        });
        Ok(Sample { rows, truth, tolerance })
    }

    fn rows(&self, rows: &[usize]) -> Dense<f64> {
        let mut marks = Dense::zeros(rows.len(), Marks::COUNT);
        let Some(c) = &self.result else { return marks };
        for (s, &i) in rows.iter().enumerate() {
            for (at, e) in c.row(i).enumerate() {
                let entry = (at, c.cols()[e] as usize, f64::from(c.value(e)));
                Marks::add(marks.row_mut(s), entry, |p| p);
            }
        }
        marks
    }
}
