//! Times the operators by index: `segment square|elements|long|graph [DATA]` prints, for each case,
//! milliseconds with the result in new memory and in memory used before, and the least that moving
//! its bytes takes at the rate of a copy. Indices are checked, and those in `i64` narrowed, each
//! time.

#![allow(clippy::unwrap_used)]

use std::time::Instant;

use lacis::data::Job;
use lacis::kernels::segment::backward::Backward;
use lacis::kernels::segment::elements::{IndexMatrix, Scatter, gather};
use lacis::kernels::segment::reduce::{Args, choose};
use lacis::kernels::segment::{Index, Segments, select, softmax};
use lacis::kernels::{Isa, MatMut};
use lacis::reference::{Axis, Reduce, Ties};
use lacis::{Dense, Rng, Threads};

const ROUNDS: usize = 5;
const AXES: [(Axis, &str); 2] = [(Axis::Rows, "0"), (Axis::Cols, "1")];

fn main() -> lacis::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut bench =
        Bench { threads: Threads::available(), isa: Isa::best(), bytes_per_ms: f64::INFINITY };
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
    /// The rate of a copy, reading and writing counted.
    bytes_per_ms: f64,
}

fn random(len: usize, n: usize) -> Vec<u32> {
    let rng = Rng::new(len as u64, "index");
    let four = |b: usize| rng.block(b as u64).map(|r| (u64::from(r) * n as u64 >> 32) as u32);
    (0..len.div_ceil(4)).flat_map(four).take(len).collect()
}

fn numbers(n_rows: usize, n_cols: usize) -> Dense {
    let data = (0..n_rows * n_cols).map(|i| (i * 7919 % 1009) as f32 * 0.01).collect();
    Dense::from_vec(data, n_rows, n_cols).unwrap()
}

/// `length` along the axis, `width` across.
fn shape(axis: Axis, length: usize, width: usize) -> (usize, usize) {
    if axis == Axis::Rows { (length, width) } else { (width, length) }
}

impl Bench {
    /// Medians with new and with old memory for the result.
    fn time(&self, name: &str, words: usize, shape: (usize, usize), f: impl Fn(&mut Dense)) -> f64 {
        let mut old = Dense::zeros(shape.0, shape.1);
        f(&mut old);
        let (mut with_new, mut with_old) = (Vec::new(), Vec::new());
        let timed = |f: &mut dyn FnMut()| {
            let begun = Instant::now();
            f();
            begun.elapsed().as_secs_f64() * 1e3
        };
        for _ in 0..ROUNDS {
            with_old.push(timed(&mut || f(&mut old)));
            with_new.push(timed(&mut || f(&mut Dense::zeros(shape.0, shape.1))));
        }
        let [new, old] = [with_new, with_old].map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        });
        let floor = (words * 4) as f64 / self.bytes_per_ms;
        println!("{name:<24} new {new:8.2} old {old:8.2} floor {floor:8.2}");
        old
    }

    /// Finds the rate of a copy.
    fn copy(&mut self, x: &Dense) {
        let (n_rows, k) = (x.n_rows(), x.n_cols());
        let words = 2 * n_rows * k;
        let ms = self.time("copy", words, (n_rows, k), |y| {
            let size = (n_rows * k).div_ceil(64);
            let pairs = y.data_mut().chunks_mut(size).zip(x.data().chunks(size)).collect();
            self.threads.for_each(pairs, |(y, x): (&mut [f32], &[f32])| y.copy_from_slice(x));
        });
        self.bytes_per_ms = (words * 4) as f64 / ms;
    }

    fn selects(&self, name: &str, x: &Dense, at: &[u32], axis: Axis) {
        let width = if axis == Axis::Rows { x.n_cols() } else { x.n_rows() };
        let length = x.n_rows() * x.n_cols() / width;
        let shape = shape(axis, at.len(), width);
        // What is chosen twice is read once.
        let words = (at.len().min(length) + at.len()) * width + at.len();
        self.time(&format!("select.{name}"), words, shape, |y| {
            let index = Index::new(at, length, &self.threads).unwrap();
            let args = select::Args::new(x, &index, axis).unwrap();
            args.run(self.isa, y, &self.threads).unwrap();
        });
    }

    fn reduces(&self, name: &str, x: &Dense, at: &[u32], (n, axis): (usize, Axis)) {
        let size = x.n_rows() * x.n_cols();
        let shape = shape(axis, n, size / at.len());
        let words = size + shape.0 * shape.1 + at.len();
        let index = || Index::new(at, n, &self.threads).unwrap();
        for reduce in [Reduce::Sum, Reduce::Mean, Reduce::Max] {
            let what = format!("{reduce:?}.{name}").to_lowercase();
            self.time(&what, words, shape, |y| {
                let index = index();
                let args = Args::new(x, Segments::from_index(&index), reduce, axis).unwrap();
                choose(&args).run(self.isa, &args, y, &self.threads).unwrap();
            });
        }
        self.time(&format!("index_add.{name}"), words + shape.0 * shape.1, shape, |y| {
            let index = index();
            let args = Args::index_add(x, Segments::from_index(&index), axis).unwrap();
            choose(&args).run(self.isa, &args, y, &self.threads).unwrap();
        });
    }

    /// Backward of a mean and a maximum.
    fn backwards(&self, name: &str, x: &Dense, at: &[u32], (n, axis): (usize, Axis)) {
        let size = x.n_rows() * x.n_cols();
        let shape = shape(axis, n, size / at.len());
        let grad = numbers(shape.0, shape.1);
        for (reduce, reads) in [(Reduce::Mean, 0), (Reduce::Max, size + shape.0 * shape.1)] {
            let words = size + shape.0 * shape.1 + reads;
            let what = format!("d{reduce:?}.{name}").to_lowercase();
            self.time(&what, words, (x.n_rows(), x.n_cols()), |dx| {
                let index = Index::new(at, n, &self.threads).unwrap();
                let args = Args::new(x, Segments::from_index(&index), reduce, axis).unwrap();
                let backward = Backward::new(args, Ties::SplitEvenly, &grad).unwrap();
                backward.run(self.isa, dx, &self.threads).unwrap();
            });
        }
    }

    fn square(&mut self, n: usize) -> lacis::Result<()> {
        let x = numbers(n, n);
        self.copy(&x);
        for (axis, dim) in AXES {
            for factor in [1, 4] {
                self.selects(&format!("{dim}.rf{factor}"), &x, &random(n / factor, n), axis);
            }
            for factor in [1, 8] {
                let (at, n) = (random(n, n / factor), n / factor);
                self.reduces(&format!("{dim}.rf{factor}"), &x, &at, (n, axis));
            }
            self.backwards(&format!("{dim}.rf8"), &x, &random(n, n / 8), (n / 8, axis));
        }
        Ok(())
    }

    fn elements(&mut self, n: usize) -> lacis::Result<()> {
        let (x, at) = (numbers(n, n), random(n * n, n));
        self.copy(&x);
        let index = Index::new(&at, n, &self.threads)?;
        let index = IndexMatrix::new(&index, n, n)?;
        for (axis, dim) in AXES {
            self.time(&format!("gather.{dim}"), n * n * 3, (n, n), |y| {
                gather(&x, index, axis, y, &self.threads).unwrap();
            });
            for reduce in [Reduce::Sum, Reduce::Max] {
                let name = format!("elements.{reduce:?}.{dim}").to_lowercase();
                self.time(&name, n * n * 3, (n, n), |y| {
                    let scatter = Scatter::new(&x, index, reduce, axis).unwrap();
                    scatter.run(y, &self.threads).unwrap();
                });
            }
        }
        Ok(())
    }

    fn long(&mut self, n: usize) -> lacis::Result<()> {
        let (x, at) = (numbers(n, 1), random(n, n));
        self.copy(&x);
        self.selects("long", &x, &at, Axis::Rows);
        self.reduces("long.rf1", &x, &at, (n, Axis::Rows));
        self.reduces("long.rf8", &x, &random(n, n / 8), (n / 8, Axis::Rows));
        Ok(())
    }

    fn graph(&mut self, data: &str) -> lacis::Result<()> {
        let set = lacis::open(data, &Job::quiet(&self.threads))?;
        let a = set.graph().adjacency();
        let (n, at, nnz) = (a.n_cols(), a.cols(), a.nnz());
        self.copy(&numbers(8000, 4000));
        for k in [1, 16, 64, 128] {
            let (x, e) = (numbers(n, k), numbers(nnz, k));
            self.selects(&format!("g.k{k}"), &x, at, Axis::Rows);
            self.reduces(&format!("g.k{k}"), &e, at, (n, Axis::Rows));
            if k > 16 {
                continue;
            }
            self.time(&format!("softmax.g.k{k}"), 2 * nnz * k + nnz, (nnz, k), |y| {
                let index = Index::new(at, n, &self.threads).unwrap();
                let args = softmax::Args::new(&e, Segments::from_index(&index), Axis::Rows);
                args.unwrap().run(self.isa, y, &self.threads).unwrap();
            });
            self.time(&format!("dsoftmax.g.k{k}"), 3 * nnz * k + nnz, (nnz, k), |y| {
                let index = Index::new(at, n, &self.threads).unwrap();
                let by = Segments::from_index(&index);
                let args = softmax::Backward::new(&e, by, Axis::Rows, &e).unwrap();
                args.run(self.isa, MatMut::from(y), &self.threads).unwrap();
            });
        }
        Ok(())
    }
}
