//! Times the operators by index: `segment square|elements|long|graph [DATA]` prints milliseconds,
//! with results in new memory and in memory used before, and the rate of bytes that must move.

#![allow(clippy::unwrap_used)]

use std::time::Instant;

use lacis::data::Job;
use lacis::kernels::Isa;
use lacis::kernels::segment::elements::{IndexMatrix, Scatter, gather};
use lacis::kernels::segment::reduce::{Args, KERNELS, choose};
use lacis::kernels::segment::{Groups, Index, Segments, select, softmax};
use lacis::reference::{Axis, Reduce};
use lacis::{Dense, Rng, Threads};

const ROUNDS: usize = 5;
const AXES: [(Axis, &str); 2] = [(Axis::Rows, "0"), (Axis::Cols, "1")];

fn main() -> lacis::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let bench = Bench { threads: Threads::available(), isa: Isa::best() };
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["square"] => bench.square(8000),
        ["elements"] => bench.elements(8000),
        ["long"] => bench.long(30_000_000),
        ["graph", data] => bench.graph(data),
        _ => {
            println!("usage: segment square|elements|long|graph DATA");
            Ok(())
        }
    }
}

struct Bench {
    threads: Threads,
    isa: Isa,
}

fn random(len: usize, n: usize) -> Vec<i64> {
    let rng = Rng::new(len as u64, "index");
    let four = |b: usize| rng.block(b as u64).map(|r| (u64::from(r) * n as u64 >> 32) as i64);
    (0..len.div_ceil(4)).flat_map(four).take(len).collect()
}

fn numbers(n_rows: usize, n_cols: usize) -> Dense {
    Dense::from_fn(n_rows, n_cols, |i, j| ((i * 7 + j * 13) % 101) as f64 * 0.01)
}

impl Bench {
    /// Medians with new and with old memory for the result.
    fn time(&self, name: &str, bytes: usize, shape: (usize, usize), f: impl Fn(&mut Dense)) {
        let median = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let mut old = Dense::zeros(shape.0, shape.1);
        f(&mut old);
        let (mut with_new, mut with_old) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            f(&mut old);
            with_old.push(begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            f(&mut Dense::zeros(shape.0, shape.1));
            with_new.push(begun.elapsed().as_secs_f64());
        }
        let (new, old) = (median(with_new) * 1e3, median(with_old) * 1e3);
        println!(
            "{name:<40} new {new:8.2} ms  old {old:8.2} ms {:6.1} GB/s",
            bytes as f64 / old / 1e6
        );
    }

    fn reduces(&self, name: &str, x: &Dense, at: &[i64], (n, axis): (usize, Axis)) {
        let index = Index::narrowed(at, n, &self.threads).unwrap();
        let shape = match axis {
            Axis::Rows => (n, x.n_cols()),
            Axis::Cols => (x.n_rows(), n),
        };
        let bytes = (x.n_rows() * x.n_cols() + shape.0 * shape.1) * 4 + at.len() * 4;
        for reduce in [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Mul] {
            let what = format!("scatter.{reduce:?}.{name} i64").to_lowercase();
            self.time(&what, bytes, shape, |y| {
                let index = Index::narrowed(at, n, &self.threads).unwrap();
                let args = Args::new(x, Segments::from_index(&index), reduce, axis).unwrap();
                choose(&args).run(self.isa, &args, y, &self.threads).unwrap();
            });
        }
        let groups = Groups::new(index.clone(), &self.threads);
        for (kept, segments) in [("", Segments::from_index(&index)), ("kept ", groups.segments())] {
            let args = Args::new(x, segments, Reduce::Sum, axis).unwrap();
            for kernel in KERNELS.iter().filter(|kernel| kernel.accepts(&args)) {
                let what = format!("  sum.{name} {kept}{}", kernel.name);
                self.time(&what, bytes, shape, |y| {
                    kernel.run(self.isa, &args, y, &self.threads).unwrap();
                });
            }
        }
        let args = Args::index_add(x, Segments::from_index(&index), axis).unwrap();
        self.time(&format!("index_add.{name}"), bytes, shape, |y| {
            choose(&args).run(self.isa, &args, y, &self.threads).unwrap();
        });
    }

    fn selects(&self, name: &str, x: &Dense, at: &[i64], axis: Axis) {
        let (n, shape) = match axis {
            Axis::Rows => (x.n_rows(), (at.len(), x.n_cols())),
            Axis::Cols => (x.n_cols(), (x.n_rows(), at.len())),
        };
        let bytes = shape.0 * shape.1 * 8 + at.len() * 4;
        self.time(&format!("select.{name} i64"), bytes, shape, |y| {
            let index = Index::narrowed(at, n, &self.threads).unwrap();
            let args = select::Args::new(x, &index, axis).unwrap();
            args.run(self.isa, y, &self.threads).unwrap();
        });
    }

    fn square(&self, n: usize) -> lacis::Result<()> {
        let x = numbers(n, n);
        self.time("copy", n * n * 8, (n, n), |y| {
            let at: Vec<u32> = (0..n as u32).collect();
            let index = Index::new(&at, n, &self.threads).unwrap();
            let args = select::Args::new(&x, &index, Axis::Rows).unwrap();
            args.run(self.isa, y, &self.threads).unwrap();
        });
        for (axis, dim) in AXES {
            for factor in [1, 4] {
                let at = random(n / factor, n);
                self.selects(&format!("{dim}.rf{factor}"), &x, &at, axis);
            }
            for factor in [1, 8] {
                let at = random(n, n / factor);
                self.reduces(&format!("{dim}.rf{factor}"), &x, &at, (n / factor, axis));
            }
        }
        Ok(())
    }

    fn elements(&self, n: usize) -> lacis::Result<()> {
        let (x, at) = (numbers(n, n), random(n * n, n));
        let narrow = Index::narrowed(&at, n, &self.threads)?;
        let narrow = IndexMatrix::new(&narrow, n, n)?;
        for (axis, dim) in AXES {
            self.time(&format!("gather.{dim}"), n * n * 12, (n, n), |y| {
                gather(&x, narrow, axis, y, &self.threads).unwrap();
            });
            self.time(&format!("gather.{dim} i64"), n * n * 16, (n, n), |y| {
                let index = Index::narrowed(&at, n, &self.threads).unwrap();
                let index = IndexMatrix::new(&index, n, n).unwrap();
                gather(&x, index, axis, y, &self.threads).unwrap();
            });
            for reduce in [Reduce::Sum, Reduce::Max] {
                let name = format!("scatter_elements.{reduce:?}.{dim}").to_lowercase();
                self.time(&name, n * n * 12, (n, n), |y| {
                    let scatter = Scatter::new(&x, narrow, reduce, axis).unwrap();
                    scatter.run(y, &self.threads).unwrap();
                });
            }
        }
        Ok(())
    }

    fn long(&self, n: usize) -> lacis::Result<()> {
        let (x, at) = (numbers(n, 1), random(n, n));
        self.selects("ls.rf1", &x, &at, Axis::Rows);
        self.selects("ls.rf8", &x, &at[..n / 8], Axis::Rows);
        for factor in [1, 8] {
            let at = random(n, n / factor);
            self.reduces(&format!("ls.rf{factor}"), &x, &at, (n / factor, Axis::Rows));
        }
        Ok(())
    }

    fn graph(&self, data: &str) -> lacis::Result<()> {
        let set = lacis::open(data, &Job::quiet(&self.threads))?;
        let a = set.graph().adjacency();
        let n = a.n_cols();
        let at: Vec<i64> = a.cols().iter().map(|&j| i64::from(j)).collect();
        let rows: Vec<i64> = a.entries().map(|(i, _, _)| i as i64).collect();
        let index = Index::new(a.cols(), n, &self.threads)?;
        self.time("groups", a.nnz() * 12, (1, 1), |_| {
            Groups::new(index.clone(), &self.threads);
        });
        for k in [1, 16, 64, 128] {
            let x = numbers(n, k);
            self.selects(&format!("g.k{k}"), &x, &at, Axis::Rows);
            let e = numbers(a.nnz(), k);
            self.reduces(&format!("g.k{k}"), &e, &at, (n, Axis::Rows));
            self.reduces(&format!("g.sorted.k{k}"), &e, &rows, (n, Axis::Rows));
            for (name, at) in [("", &at), (".sorted", &rows)] {
                let bytes = a.nnz() * k * 8;
                self.time(&format!("softmax.g{name}.k{k} i64"), bytes, (a.nnz(), k), |y| {
                    let index = Index::narrowed(at, n, &self.threads).unwrap();
                    let by = Segments::from_index(&index);
                    let args = softmax::Args::new(&e, by, Axis::Rows).unwrap();
                    args.run(self.isa, y, &self.threads).unwrap();
                });
            }
        }
        Ok(())
    }
}
