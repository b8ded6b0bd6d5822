//! [`lacis_kernels::gemm`] against `lacis_core::reference`.

use lacis_core::reference::{self, Activation, Form};
use lacis_core::{Buffer, Dense, Element, Threads, bf16};
use lacis_kernels::gemm::{Args, KERNELS, Kernel, Segments, gemm, grouped};
use lacis_kernels::{Accum, Isa, Mat, MatMut, Stored};

use crate::cases::{assert_close, bits, dense, on_every_machine};

const FORMS: [Form; 3] = [Form::Nn, Form::Nt, Form::Tn];
const ACTIVATIONS: [Activation; 6] = [
    Activation::Identity,
    Activation::Relu,
    Activation::LeakyRelu(0.2),
    Activation::Elu(1.5),
    Activation::Sigmoid,
    Activation::Tanh,
];

/// The factors of a product `m × k` times `k × n`, as the form has them.
fn factors<X: Element, Z: Element>(
    form: Form,
    m: usize,
    k: usize,
    n: usize,
) -> (Dense<X>, Dense<Z>) {
    match form {
        Form::Nn => (dense(m, k, 1), dense(k, n, 2)),
        Form::Nt => (dense(m, k, 1), dense(n, k, 2)),
        Form::Tn => (dense(k, m, 1), dense(k, n, 2)),
    }
}

/// `k` products of at most 1, an epsilon each of the sum so far, and what storing rounds.
fn tolerance<X: Stored, O: Stored>(k: usize) -> f64 {
    let sum = if size_of::<X::Sum>() == 8 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let stored = if size_of::<O>() == 2 { 2f64.powi(-8) } else { sum };
    let k = k as f64 + 4.0;
    k * k * sum + k * stored
}

fn check<X, Z, O>(form: Form, (m, k, n): (usize, usize, usize))
where
    X: Stored,
    Z: Stored<Sum = X::Sum>,
    O: Stored<Sum = X::Sum>,
{
    let (x, z) = factors::<X, Z>(form, m, k, n);
    let truth = reference::matmul(&x.cast(), &z.cast(), form).unwrap();
    let args = Args::new(form, &x, &z).unwrap();
    for kernel in KERNELS.iter().filter(|kernel| kernel.takes(form)) {
        let results = on_every_machine(|isa, threads| {
            let mut y = Dense::<O>::from_fn(m, n, |_, _| f64::NAN);
            kernel.run(isa, &args, &mut y, threads).unwrap();
            (bits(&y), y)
        });
        for (isa, (_, y)) in results {
            let what = format!("{} {} {form:?} {m} {k} {n}", kernel.name, isa.name());
            assert_close(&y, &truth, tolerance::<X, O>(k), &what);
        }
    }
}

#[test]
fn all_widths() {
    for form in FORMS {
        for n in (1..=70).chain([95, 96, 97, 100, 127, 128, 129, 130]) {
            check::<f32, f32, f32>(form, (13, 9, n));
        }
        // Few columns are sums along rows.
        for (n, k) in (1..=5).flat_map(|n| [31, 32, 33, 64, 130, 200].map(|k| (n, k))) {
            check::<f32, f32, f32>(form, (13, k, n));
        }
        // Sums of one term are scaled rows.
        for n in [1, 5, 63, 64, 65, 130] {
            check::<f32, f32, f32>(form, (13, 1, n));
            check::<bf16, f32, bf16>(form, (13, 1, n));
        }
        for size in 1..=20 {
            check::<f32, f32, f32>(form, (size, 7, 17));
            check::<f32, f32, f32>(form, (8, size, 33));
        }
    }
}

#[test]
fn every_number_type() {
    for form in FORMS {
        for size in [(7, 5, 3), (20, 130, 65), (20, 130, 2)] {
            check::<f64, f64, f64>(form, size);
            check::<bf16, f32, bf16>(form, size);
            check::<bf16, bf16, f32>(form, size);
        }
    }
}

#[test]
fn many_blocks_and_pieces() {
    for form in FORMS {
        check::<f32, f32, f32>(form, (1000, 30, 20));
        check::<f32, f32, f32>(form, (400, 70, 300));
    }
    check::<f32, f32, f32>(Form::Tn, (20, 5000, 18));
    // Rows with more numbers than a block is meant to have.
    check::<f32, f32, f32>(Form::Nn, (3, 2, 33_000));
    check::<f32, f32, f32>(Form::Nn, (3, 33_000, 17));
    check::<f32, f32, f32>(Form::Nn, (5, 3000, 9));
}

#[test]
fn nothing_to_do() {
    for form in FORMS {
        for size in [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)] {
            check::<f32, f32, f32>(form, size);
        }
    }
}

/// A product times the slopes of a function, over the function's values.
fn check_gate(activation: Activation, form: Form, (m, k, n): (usize, usize, usize)) {
    let (x, z) = factors::<f32, f32>(form, m, k, n);
    let argument = dense::<f32>(m, n, 5).cast();
    let value: Dense<f32> = reference::activate(&argument, activation).cast();
    let product = reference::matmul(&x.cast(), &z.cast(), form).unwrap();
    let truth = reference::activate_backward(&argument, activation, &product).unwrap();
    let args = Args::new(form, &x, &z).unwrap().accumulated(Accum::Gate(activation));
    for kernel in KERNELS.iter().filter(|kernel| kernel.takes(form)) {
        let results = on_every_machine(|isa, threads| {
            let mut y = value.clone();
            kernel.run(isa, &args, &mut y, threads).unwrap();
            y
        });
        for (isa, y) in results {
            let what = format!("{} {} {form:?} {activation:?}", kernel.name, isa.name());
            assert_close(&y, &truth, 8.0 * tolerance::<f32, f32>(k), &what);
        }
    }
}

#[test]
fn gates_are_those_of_the_reference() {
    for activation in ACTIVATIONS {
        for form in FORMS {
            check_gate(activation, form, (9, 8, 37));
            check_gate(activation, form, (13, 130, 3));
            check_gate(activation, form, (20, 2100, 18));
        }
    }
}

/// `f(x·z + x'·z' + b)`, the second product of the first rows, against its parts.
fn check_sum<X: Stored<Sum = f32>, O: Stored<Sum = f32>>(
    form: Form,
    [m, k, n]: [usize; 3],
    [m2, k2]: [usize; 2],
) {
    let ((x, z), (x2, z2)) = (factors::<X, f32>(form, m, k, n), factors::<X, f32>(form, m2, k2, n));
    let product = |x: &Dense<X>, z: &Dense<f32>| reference::matmul(&x.cast(), &z.cast(), form);
    let (one, other) = (product(&x, &z).unwrap(), product(&x2, &z2).unwrap());
    let other = |i, j| if i < m2 { other.at(i, j) } else { 0.0 };
    let sum = Dense::from_fn(m, n, |i, j| one.at(i, j) + other(i, j));
    let truth = reference::activate(&sum, Activation::Relu);
    let args = Args::new(form, &x, &z).unwrap().plus(&x2, &z2).unwrap();
    let args = args.activated(Activation::Relu);
    for kernel in KERNELS {
        let results = on_every_machine(|isa, threads| {
            let mut y = Dense::<O>::from_fn(m, n, |_, _| f64::NAN);
            kernel.run(isa, &args, &mut y, threads).unwrap();
            (bits(&y), y)
        });
        for (isa, (_, y)) in results {
            let what = format!("{} {} {form:?} {m} {k} {n} + {m2} {k2}", kernel.name, isa.name());
            assert_close(&y, &truth, 2.0 * tolerance::<X, O>(k + k2), &what);
        }
    }
}

#[test]
fn two_products_at_once() {
    for form in [Form::Nn, Form::Nt] {
        for n in [1, 3, 16, 37, 64, 130] {
            check_sum::<f32, f32>(form, [20, 9, n], [20, 5]);
            check_sum::<f32, f32>(form, [20, 40, n], [7, 130]);
        }
        for rows in [0, 1, 384, 500, 1000] {
            check_sum::<f32, f32>(form, [1000, 17, 18], [rows, 3]);
        }
        check_sum::<f32, f32>(form, [5, 3000, 9], [4, 0]);
        check_sum::<bf16, bf16>(form, [20, 9, 37], [11, 5]);
    }
}

#[test]
fn a_second_product_that_does_not_fit_is_an_error() {
    let (x, z) = factors::<f32, f32>(Form::Nn, 5, 4, 3);
    let args = Args::new(Form::Nn, &x, &z).unwrap();
    let (more, _) = factors::<f32, f32>(Form::Nn, 6, 4, 3);
    let (_, wide) = factors::<f32, f32>(Form::Nn, 5, 4, 4);
    assert!(args.plus(&more, &z).is_err());
    assert!(args.plus(&x, &wide).is_err());
    let turned = Args::new(Form::Tn, &x, &x).unwrap();
    assert!(turned.plus(&x, &x).is_err());
}

#[test]
fn epilogues_are_those_of_the_reference() {
    let (m, k, n) = (9, 8, 37);
    let (x, z) = factors::<f32, f32>(Form::Nn, m, k, n);
    let (before, bias) = (dense::<f32>(m, n, 5), dense::<f32>(1, n, 6));
    let wide: Vec<f64> = bias.row(0).iter().map(|&b| f64::from(b)).collect();
    let product = reference::matmul(&x.cast(), &z.cast(), Form::Nn).unwrap();
    let sum = reference::add(&reference::add_bias(&product, &wide).unwrap(), &before.cast());
    for activation in ACTIVATIONS {
        let truth = reference::activate(sum.as_ref().unwrap(), activation);
        let args = Args::new(Form::Nn, &x, &z).unwrap().accumulated(Accum::Add);
        let args = args.biased(bias.row(0)).unwrap().activated(activation);
        for kernel in KERNELS {
            let results = on_every_machine(|isa, threads| {
                let mut y = before.clone();
                kernel.run(isa, &args, &mut y, threads).unwrap();
                y
            });
            for (isa, y) in results {
                let what = format!("{} {} {activation:?}", kernel.name, isa.name());
                assert_close(&y, &truth, 4.0 * tolerance::<f32, f32>(k), &what);
            }
        }
    }
}

#[test]
fn strides_are_kept_to_and_nan_stays() {
    for form in FORMS {
        let (x, z) = factors::<f32, f32>(form, 11, 10, 21);
        let padded = |x: &Dense| {
            let mut data = vec![f32::NAN; x.n_rows() * (x.n_cols() + 3)];
            for (to, from) in data.chunks_exact_mut(x.n_cols() + 3).zip(x.rows()) {
                to[..from.len()].copy_from_slice(from);
            }
            Dense::new(Buffer::from(data), x.n_rows(), x.n_cols(), x.n_cols() + 3).unwrap()
        };
        let truth = reference::matmul(&x.cast(), &z.cast(), form).unwrap();
        let (mut x, z) = (padded(&x), padded(&z));
        for kernel in KERNELS.iter().filter(|kernel| kernel.takes(form)) {
            let args = Args::new(form, &x, &z).unwrap();
            let mut y = padded(&Dense::zeros(11, 21));
            y.data_mut().fill(7.0);
            kernel.run(Isa::best(), &args, &mut y, &Threads::new(2).unwrap()).unwrap();
            assert_close(&y, &truth, tolerance::<f32, f32>(10), kernel.name);
            assert!(y.data().chunks(24).all(|row| row[21..].iter().all(|&v| v == 7.0)));
        }
        x.row_mut(4)[5] = f32::NAN;
        let mut y = Dense::<f32>::zeros(11, 21);
        gemm(&Args::new(form, &x, &z).unwrap(), &mut y, &Threads::one()).unwrap();
        let nan: usize = y.rows().flatten().filter(|v| v.is_nan()).count();
        assert_eq!(nan, 21, "{form:?}: one row of the result");
    }
}

#[test]
fn sizes_are_checked() {
    let (x, z) = (dense::<f32>(5, 4, 1), dense::<f32>(4, 3, 2));
    assert!(Args::new(Form::Nt, &x, &z).is_err() && Args::new(Form::Tn, &x, &z).is_err());
    let args = Args::new(Form::Nn, &x, &z).unwrap();
    assert!(args.biased(&[0.0; 4]).is_err());
    let threads = Threads::one();
    for kernel in KERNELS {
        let run = |m, n| kernel.run(Isa::best(), &args, &mut Dense::<f32>::zeros(m, n), &threads);
        assert!(run(5, 3).is_ok() && run(4, 3).is_err() && run(5, 4).is_err());
    }
    let turned = Args::new(Form::Tn, &z, &z).unwrap();
    let rows = KERNELS.iter().find(|kernel| !kernel.takes(Form::Tn)).unwrap();
    assert!(rows.run(Isa::best(), &turned, &mut Dense::<f32>::zeros(3, 3), &threads).is_err());
    assert!(Kernel::usual(Isa::best(), &turned).takes(Form::Tn));
}

/// Groups of many, no and few rows.
fn check_segments<T: Stored>(ptr: &[usize], k: usize, n: usize)
where
    f32: Stored<Sum = T::Sum>,
{
    let rows = *ptr.last().unwrap();
    let (x, dy) = (dense::<T>(rows, k, 1), dense::<T>(rows, n, 2));
    let weights: Vec<Dense> = (1..ptr.len()).map(|g| dense(k, n, 10 + g as u64)).collect();
    let wide: Vec<Dense<f64>> = weights.iter().map(Dense::cast).collect();
    let ptr64: Vec<u64> = ptr.iter().map(|&p| p as u64).collect();
    let y = reference::segment_matmul(&x.cast(), &ptr64, &wide).unwrap();
    let (dx, dw) =
        reference::segment_matmul_backward(&x.cast(), &ptr64, &wide, &dy.cast()).unwrap();
    let segments = Segments::new(ptr, weights.iter().map(Mat::from).collect()).unwrap();
    let results = on_every_machine(|isa, threads| {
        let (mut y, mut dx) = (Dense::<T>::zeros(rows, n), Dense::<T>::zeros(rows, k));
        let mut dw: Vec<Dense> = weights.iter().map(|_| Dense::zeros(k, n)).collect();
        segments.forward(isa, (&x).into(), MatMut::from(&mut y), threads).unwrap();
        segments.input_gradient(isa, (&dy).into(), MatMut::from(&mut dx), threads).unwrap();
        let to = dw.iter_mut().map(MatMut::from).collect();
        segments.weight_gradients(isa, ((&x).into(), (&dy).into()), to, threads).unwrap();
        (y, dx, dw)
    });
    for (isa, (found_y, found_dx, found_dw)) in results {
        assert_close(&found_y, &y, tolerance::<T, T>(k), isa.name());
        assert_close(&found_dx, &dx, tolerance::<T, T>(n), isa.name());
        for (found, dw) in found_dw.iter().zip(&dw) {
            assert_close(found, dw, tolerance::<T, f32>(rows), isa.name());
        }
    }
}

#[test]
fn segments_forward_and_backward() {
    check_segments::<f32>(&[0, 2, 2, 500, 503, 510], 17, 20);
    check_segments::<f32>(&[0, 3000], 5, 3);
    check_segments::<bf16>(&[0, 4, 40], 9, 33);
    check_segments::<f32>(&[0, 0], 3, 2);
}

#[test]
fn groups_of_any_sizes() {
    let sizes = [(3, 4, 5), (1, 1, 1), (0, 2, 3), (40, 7, 70)];
    for form in FORMS {
        let factors: Vec<_> =
            sizes.iter().map(|&(m, k, n)| factors::<f32, f32>(form, m, k, n)).collect();
        let mut found: Vec<Dense> = sizes.iter().map(|&(m, _, n)| Dense::zeros(m, n)).collect();
        let items =
            factors.iter().zip(&mut found).map(|((x, z), y)| (x.into(), z.into(), y.into()));
        grouped(Isa::best(), form, items.collect(), &Threads::new(2).unwrap()).unwrap();
        for ((x, z), y) in factors.iter().zip(&found) {
            let truth = reference::matmul(&x.cast(), &z.cast(), form).unwrap();
            assert_close(y, &truth, tolerance::<f32, f32>(7), "grouped");
        }
    }
}

#[test]
fn segments_are_checked() {
    let w = dense::<f32>(4, 3, 1);
    let weights = |n: usize| vec![Mat::from(&w); n];
    assert!(Segments::new(&[0, 2, 5], weights(2)).is_ok());
    assert!(Segments::new(&[0, 2, 5], weights(1)).is_err());
    assert!(Segments::new(&[], Vec::<Mat<'_>>::new()).is_err());
    assert!(Segments::new(&[1, 2], weights(1)).is_err());
    assert!(Segments::new(&[0, 3, 2], weights(2)).is_err());
    let other = dense::<f32>(4, 2, 1);
    assert!(Segments::new(&[0, 2, 5], vec![(&w).into(), (&other).into()]).is_err());
    let segments = Segments::new(&[0, 2, 5], weights(2)).unwrap();
    let (x, mut y) = (dense::<f32>(5, 4, 1), Dense::<f32>::zeros(6, 3));
    let (isa, threads) = (Isa::best(), Threads::one());
    assert!(segments.forward(isa, (&x).into(), MatMut::from(&mut y), &threads).is_err());
}
