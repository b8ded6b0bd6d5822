//! [`lacis_kernels::spmm`] against `lacis_core::reference`.

use lacis_core::reference::{Reduce, Spmm};
use lacis_core::{Csr, Dense, Threads};
use lacis_kernels::Isa;
use lacis_kernels::spmm::{Args, KERNELS};

use crate::cases::{self, longest_row, matrix};

fn dense(n_rows: usize, n_cols: usize) -> Dense {
    cases::dense(n_rows, n_cols, 9)
}

/// What rounding may cost: an epsilon for each entry of the longest row, of the sum of magnitudes.
fn tolerance(a: &Csr, reduce: Reduce, magnitude: f64) -> f64 {
    let longest = longest_row(a);
    let terms = if reduce == Reduce::Mul { 1.0 } else { longest };
    terms * (longest + 4.0) * f64::from(f32::EPSILON) * magnitude
}

fn check(a: &Csr, x: &Dense, scaled: bool) {
    let wide = x.cast::<f64>();
    let left: Vec<f32> = (0..a.n_rows()).map(|i| 0.5 + (i % 5) as f32 * 0.25).collect();
    let right: Vec<f32> = (0..a.n_cols()).map(|j| 1.5 - (j % 3) as f32 * 0.5).collect();
    let [left64, right64] =
        [&left, &right].map(|v| v.iter().map(|&f| f64::from(f)).collect::<Vec<_>>());
    for reduce in Reduce::ALL {
        let mut truth = Spmm::new(reduce);
        if scaled {
            (truth.left, truth.right) = (Some(&left64[..]), Some(&right64[..]));
        }
        let expected = truth.forward(a, &wide).unwrap();
        let args = Args::new(a.view(), x, reduce).unwrap();
        let args = if scaled { args.scaled(Some(&left), Some(&right)).unwrap() } else { args };
        let tolerance = tolerance(a, reduce, 4.0);
        for kernel in KERNELS {
            for isa in Isa::available() {
                let mut by_threads = Vec::new();
                for count in [1, 2, 7] {
                    let threads = Threads::new(count).unwrap();
                    let mut y = Dense::from_fn(a.n_rows(), x.n_cols(), |_, _| f64::NAN);
                    kernel.run(isa, &args, &mut y, &threads).unwrap();
                    by_threads.push(y);
                }
                assert!(by_threads.iter().all(|y| bits(y) == bits(&by_threads[0])));
                let y = &by_threads[0];
                for i in 0..a.n_rows() {
                    for j in 0..x.n_cols() {
                        let (found, right) = (y.at(i, j), expected.at(i, j));
                        let what = format!("{} {} {reduce:?} ({i}, {j})", kernel.name, isa.name());
                        assert!((found - right).abs() <= tolerance, "{what}: {found}, {right}");
                    }
                }
            }
        }
    }
}

fn bits(y: &Dense) -> Vec<u32> {
    y.rows().flatten().map(|v| v.to_bits()).collect()
}

#[test]
fn all_widths() {
    for weighted in [false, true] {
        let a = matrix(13, 11, 60, weighted);
        for k in (1..=50).chain([63, 64, 65, 100, 127, 128, 129, 130]) {
            check(&a, &dense(11, k), weighted);
        }
    }
}

#[test]
fn many_slices_and_a_hub() {
    let a = matrix(500, 300, 150_000, true);
    check(&a, &dense(300, 17), true);
}

#[test]
fn nothing_to_do() {
    for (n_rows, n_cols) in [(0, 3), (3, 1), (1, 1)] {
        let a = Csr::empty(n_rows, n_cols).unwrap();
        check(&a, &dense(n_cols, 5), false);
        check(&a, &dense(n_cols, 0), false);
    }
}

#[test]
fn slices_of_the_graph_give_the_same_bits() {
    let a = matrix(200, 90, 5000, true);
    let (x, threads) = (dense(90, 19), Threads::new(2).unwrap());
    let args = Args::new(a.view(), &x, Reduce::Sum).unwrap();
    let product = |args: &Args<'_>| {
        let mut y = Dense::zeros(200, 19);
        KERNELS[1].run(Isa::best(), args, &mut y, &threads).unwrap();
        bits(&y)
    };
    let slices = a.slices(100);
    assert_eq!(product(&args.sliced(&slices).unwrap()), product(&args));
    assert!(args.sliced(&slices[1..]).is_err());
    assert!(args.sliced(&slices[..slices.len() - 1]).is_err());
}

#[test]
fn sizes_are_checked() {
    let a = matrix(5, 4, 10, false);
    let (x, mut y) = (dense(4, 3), Dense::zeros(5, 3));
    assert!(Args::new(a.view(), &dense(5, 3), Reduce::Sum).is_err());
    let args = Args::new(a.view(), &x, Reduce::Sum).unwrap();
    assert!(args.scaled(Some(&[1.0; 4]), None).is_err());
    let threads = Threads::one();
    assert!(KERNELS[0].run(Isa::best(), &args, &mut Dense::zeros(5, 2), &threads).is_err());
    assert!(KERNELS[0].run(Isa::best(), &args, &mut Dense::zeros(4, 3), &threads).is_err());
    assert!(KERNELS[0].run(Isa::best(), &args, &mut y, &threads).is_ok());
}
