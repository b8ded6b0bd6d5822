//! [`lacis_kernels::spmm`] against `lacis_core::reference`.

use half::bf16;
use lacis_core::reference::{Activation, Reduce, Spmm, Ties};
use lacis_core::{Csr, Dense, Element, Threads};
use lacis_kernels::spmm::{Args, ExtremeBackward, KERNELS, arguments};
use lacis_kernels::{Accum, Epilogue, Isa, Real, Stored};

use crate::cases::{assert_close, bits, dense, longest_row, matrices, matrix, on_every_machine};

/// What rounding may cost: an epsilon for each entry of the longest row, of the sum of magnitudes,
/// and one of the result's format.
fn tolerance<T: Stored>(a: &Csr, reduce: Reduce) -> f64 {
    let longest = longest_row(a);
    let terms = if reduce == Reduce::Mul { 1.0 } else { longest };
    let kept = if size_of::<T>() == 2 { 2f64.powi(-8) } else { 0.0 };
    terms * 4.0 * ((longest + 6.0) * <T::Sum as Real>::EPSILON.to_f64() + kept)
}

fn scale<F: Real>(n: usize, step: f64) -> Vec<F> {
    (0..n).map(|i| F::of(0.5 + (i % 5) as f64 * step)).collect()
}

fn wide<F: Real>(numbers: &[F]) -> Vec<f64> {
    numbers.iter().map(|v| v.to_f64()).collect()
}

/// Every kernel and reduce; `scaled` turns both scales and the epilogue on.
fn check<T: Stored>(a: &Csr, k: usize, scaled: bool) {
    let (x, before) = (dense::<T>(a.n_cols(), k, 9), dense::<T>(a.n_rows(), k, 8));
    let values: Option<Vec<T::Sum>> =
        a.values().map(|values| values.iter().map(|v| T::Sum::of(f64::from(*v))).collect());
    let (left, right) = (scale::<T::Sum>(a.n_rows(), 0.25), scale::<T::Sum>(a.n_cols(), -0.5));
    let bias = scale::<T::Sum>(k, -0.3);
    let [left64, right64, bias64] = [&left, &right, &bias].map(|v| wide(v));
    let (x64, before64) = (x.cast::<f64>(), before.cast::<f64>());
    let bare = a.clone().with_values(None).unwrap();
    for reduce in Reduce::ALL {
        let mut truth = Spmm::new(reduce);
        let mut args = Args::new(bare.view(), &x, reduce).unwrap();
        if let Some(values) = &values {
            args = args.weighted(values).unwrap();
        }
        if scaled {
            (truth.left, truth.right) = (Some(&left64[..]), Some(&right64[..]));
            (truth.accumulate, truth.bias) = (Some(&before64), Some(&bias64[..]));
            truth.activation = Activation::LeakyRelu(0.1);
            let activation = truth.activation;
            let epilogue = Epilogue { accum: Accum::Add, bias: Some(&bias), activation };
            args = args.scaled(Some(&left), Some(&right)).unwrap().ending(epilogue).unwrap();
        }
        let expected = truth.forward(a, &x64).unwrap();
        for kernel in KERNELS {
            let run = |isa: Isa, threads: &Threads| {
                let nothing = Dense::<T>::from_fn(a.n_rows(), k, |_, _| f64::NAN);
                let mut y = if scaled { before.clone() } else { nothing };
                kernel.run(isa, &args, &mut y, threads).unwrap();
                Same(y)
            };
            for (isa, Same(y)) in on_every_machine(run) {
                let what = format!("{} {} {reduce:?} k={k}", kernel.name, isa.name());
                assert_close(&y, &expected, tolerance::<T>(a, reduce), &what);
            }
        }
    }
}

/// Bias and activation without what `y` held: on their way past the caches, too, in rows that are
/// whole lines and in others.
#[test]
fn endings_that_replace() {
    fn ends<T: Stored>(a: &Csr, k: usize) {
        let x = dense::<T>(a.n_cols(), k, 5);
        let bias = scale::<T::Sum>(k, -0.3);
        let bias64 = wide(&bias);
        for (reduce, activation) in [
            (Reduce::Mean, Activation::Relu),
            (Reduce::Max, Activation::Identity),
            (Reduce::Sum, Activation::Elu(1.0)),
            (Reduce::Mean, Activation::LeakyRelu(0.1)),
        ] {
            let mut truth = Spmm::new(reduce);
            (truth.bias, truth.activation) = (Some(&bias64[..]), activation);
            let epilogue = Epilogue { accum: Accum::Replace, bias: Some(&bias), activation };
            let args = Args::new(a.view(), &x, reduce).unwrap().ending(epilogue).unwrap();
            let expected = truth.forward(a, &x.cast::<f64>()).unwrap();
            for kernel in KERNELS {
                let run = |isa: Isa, threads: &Threads| {
                    let mut y = Dense::<T>::from_fn(a.n_rows(), k, |_, _| f64::NAN);
                    kernel.run(isa, &args, &mut y, threads).unwrap();
                    Same(y)
                };
                for (isa, Same(y)) in on_every_machine(run) {
                    let what = format!("{} {} {reduce:?} k={k}", kernel.name, isa.name());
                    assert_close(&y, &expected, tolerance::<T>(a, reduce), &what);
                }
            }
        }
    }
    // More rows than wait at once, or than a block has.
    let a = matrix(300, 70, 900, false);
    for k in [1, 16, 32, 41, 48, 64, 96, 100, 112, 128, 192] {
        ends::<f32>(&a, k);
        ends::<bf16>(&a, k);
    }
    ends::<f64>(&a, 41);
    ends::<f64>(&a, 48);
}

/// Equal in every bit.
struct Same<T: Element>(Dense<T>);

impl<T: Element> PartialEq for Same<T> {
    fn eq(&self, other: &Self) -> bool {
        bits(&self.0) == bits(&other.0)
    }
}

#[test]
fn all_widths() {
    for weighted in [false, true] {
        let a = matrix(13, 11, 60, weighted);
        for k in (1..=18).chain([31, 32, 33, 41, 47, 48, 49, 63, 64, 65, 100, 128, 130]) {
            check::<f32>(&a, k, weighted);
        }
        for k in [1, 2, 15, 16, 17, 41, 64, 65, 130] {
            check::<f64>(&a, k, weighted);
            check::<bf16>(&a, k, weighted);
        }
    }
}

#[test]
fn all_shapes() {
    for weighted in [false, true] {
        for a in matrices(weighted) {
            for k in [0, 1, 5, 33] {
                check::<f32>(&a, k, false);
                check::<f32>(&a, k, true);
            }
            check::<f64>(&a, 3, weighted);
            check::<bf16>(&a, 3, weighted);
        }
    }
}

/// Many slices, and a row that is cut into parts.
#[test]
fn a_hub_in_parts() {
    let a = matrix(100, 300, 220_000, true);
    assert!(longest_row(&a) > 65_536.0);
    check::<f32>(&a, 17, true);
}

/// What stands between the rows of a strided matrix is neither read as data nor written, and rows
/// that lie one after another, for which there are other loops, have the same bits.
#[test]
fn strided_matrices() {
    let a = matrix(150, 15, 700, true);
    let n = a.n_rows();
    for (k, stride) in [(19, 27), (16, 24), (32, 40), (64, 72), (96, 97), (128, 144)] {
        let x = dense::<f32>(15, k, 3);
        let mut loose = vec![f32::NAN; 15 * stride];
        for j in 0..15 {
            loose[j * stride..][..k].copy_from_slice(x.row(j));
        }
        let spread = lacis_kernels::Mat::new(&loose, 15, k, stride).unwrap();
        for kernel in KERNELS {
            let threads = Threads::new(2).unwrap();
            let mut tight = Dense::zeros(n, k);
            let args = Args::new(a.view(), &x, Reduce::Sum).unwrap();
            kernel.run(Isa::best(), &args, &mut tight, &threads).unwrap();
            let mut y = vec![7.0f32; n * stride];
            let args = Args::new(a.view(), spread, Reduce::Sum).unwrap();
            let target = lacis_kernels::MatMut::new(&mut y, n, k, stride).unwrap();
            kernel.run(Isa::best(), &args, target, &threads).unwrap();
            for i in 0..n {
                assert_eq!(&y[i * stride..][..k], tight.row(i), "{} k={k}", kernel.name);
                assert!(
                    y[i * stride..][k..stride].iter().all(|gap| *gap == 7.0),
                    "{}",
                    kernel.name
                );
            }
            // Rows one after another that do not begin with a line, and room after them.
            let mut y = vec![7.0f32; n * k + 9];
            let args = Args::new(a.view(), &x, Reduce::Sum).unwrap();
            let target = lacis_kernels::MatMut::new(&mut y[3..], n, k, k).unwrap();
            kernel.run(Isa::best(), &args, target, &threads).unwrap();
            assert_eq!([&y[..3], &y[n * k + 3..]].concat(), [7.0; 9], "{}", kernel.name);
            (0..n).for_each(|i| assert_eq!(&y[3 + i * k..][..k], tight.row(i), "{}", kernel.name));
        }
    }
}

/// Wider than what waits at once for its lines to be whole.
#[test]
fn very_wide_rows() {
    check::<f32>(&matrix(6, 5, 20, false), 9001, false);
}

#[test]
fn slices_of_the_graph_give_the_same_bits() {
    let a = matrix(200, 90, 5000, true);
    let (x, threads) = (dense::<f32>(90, 19, 9), Threads::new(2).unwrap());
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

/// Small whole numbers, so that there are many ties, and no rounding.
fn tied(n_rows: usize, n_cols: usize) -> Dense {
    Dense::from_fn(n_rows, n_cols, |i, j| ((i * 7 + j * 3) % 4) as f64 - 1.0)
}

#[test]
fn maxima_know_where_they_came_from_and_who_gets_their_gradient() {
    for (weighted, reduce) in [(false, Reduce::Max), (true, Reduce::Min), (true, Reduce::Max)] {
        for a in matrices(weighted) {
            for k in [1, 16, 37] {
                check_extreme(&a, k, reduce);
            }
        }
    }
}

fn check_extreme(a: &Csr, k: usize, reduce: Reduce) {
    let (x, grad) = (tied(a.n_cols(), k), tied(a.n_rows(), k));
    let (x64, grad64) = (x.cast::<f64>(), grad.cast::<f64>());
    let transposed = a.transpose_with_order(&Threads::one()).unwrap();
    let right = vec![2.0f32; a.n_cols()];
    let right64 = wide(&right);
    let args = Args::new(a.view(), &x, reduce).unwrap().scaled(None, Some(&right)).unwrap();
    let backward = ExtremeBackward::new(args, transposed.view()).unwrap();
    let truth = Spmm { right: Some(&right64), ..Spmm::new(reduce) };
    let places = truth.arguments(a, &x64).unwrap();
    let caller = |e: usize| a.order().map_or(e as u32, |order| order[e]);
    let expected: Vec<u32> = places.iter().map(|at| at.map_or(u32::MAX, caller)).collect();
    for ties in [Ties::SplitEvenly, Ties::SplitWithInitialZero, Ties::FirstArgument] {
        let slopes = Spmm { ties, ..truth }.backward(a, &x64, &grad64).unwrap();
        let run = |isa: Isa, threads: &Threads| {
            let (mut y, mut dx) = (Dense::zeros(a.n_rows(), k), Dense::zeros(a.n_cols(), k));
            let mut at = vec![0; a.n_rows() * k];
            arguments(isa, &args, (&mut y, &mut at[..]), threads).unwrap();
            assert_eq!(at, expected);
            match ties {
                Ties::FirstArgument => backward.chosen(isa, (&at, &grad), &mut dx, threads),
                _ => backward.even(isa, (ties, &y, &grad), &mut dx, threads),
            }
            .unwrap();
            (Same(y), Same(dx))
        };
        for (isa, (Same(y), Same(dx))) in on_every_machine(run) {
            let what = format!("{reduce:?} {ties:?} {}", isa.name());
            assert_close(&y, &truth.forward(a, &x64).unwrap(), 0.0, &what);
            assert_close(&dx, &slopes.x, 1e-5 * longest_row(a), &what);
        }
    }
}

#[test]
fn nan_stays() {
    let a = matrix(13, 11, 60, false);
    let mut x = tied(11, 20);
    (0..11).step_by(2).for_each(|j| x.row_mut(j)[j] = f32::NAN);
    for reduce in Reduce::ALL {
        let truth = Spmm::new(reduce).forward(&a, &x.cast::<f64>()).unwrap();
        let args = Args::new(a.view(), &x, reduce).unwrap();
        for kernel in KERNELS {
            let mut y = Dense::zeros(13, 20);
            kernel.run(Isa::best(), &args, &mut y, &Threads::one()).unwrap();
            assert_close(&y, &truth, 1e-3, kernel.name);
        }
    }
}

#[test]
fn sizes_are_checked() {
    let a = matrix(5, 4, 10, true);
    let (x, mut y) = (dense::<f32>(4, 3, 1), Dense::<f32>::zeros(5, 3));
    assert!(Args::new(a.view(), &dense::<f32>(5, 3, 1), Reduce::Sum).is_err());
    assert!(Args::new(a.view(), &dense::<f64>(4, 3, 1), Reduce::Sum).is_err());
    let args = Args::new(a.view(), &x, Reduce::Sum).unwrap();
    assert!(args.scaled(Some(&[1.0; 4]), None).is_err());
    assert!(args.weighted(&[1.0; 9]).is_err());
    let epilogue = Epilogue { bias: Some(&[1.0f32; 2][..]), ..Epilogue::default() };
    assert!(args.ending(epilogue).is_err());
    let threads = Threads::one();
    assert!(KERNELS[0].run(Isa::best(), &args, &mut Dense::zeros(5, 2), &threads).is_err());
    assert!(KERNELS[0].run(Isa::best(), &args, &mut Dense::zeros(4, 3), &threads).is_err());
    assert!(KERNELS[0].run(Isa::best(), &args, &mut y, &threads).is_ok());
    assert!(arguments(Isa::best(), &args, (&mut y, &mut [0; 15]), &threads).is_err());
    let transposed = a.transpose(&threads);
    assert!(ExtremeBackward::new(args, transposed.view()).is_err());
    let args = Args::new(a.view(), &x, Reduce::Max).unwrap();
    assert!(ExtremeBackward::new(args, a.view()).is_err());
    let backward = ExtremeBackward::new(args, transposed.view()).unwrap();
    let mut dx = Dense::<f32>::zeros(4, 3);
    let chosen = backward.chosen(Isa::best(), (&[0; 15], &y), &mut dx, &threads);
    assert!(chosen.unwrap_err().to_string().contains("transpose_with_order"));
}
