//! [`lacis_kernels::edge_softmax`], [`lacis_kernels::edge`] and [`lacis_kernels::roof`] against
//! `lacis_core::reference`.

use half::bf16;
use lacis_core::reference::{
    EdgeFunction, FusedEdge, edge_softmax as softmax, edge_softmax_backward, rows_in_caller_order,
};
use lacis_core::{Csr, Dense, Threads};
use lacis_kernels::edge::{
    self, OfRows, RowFunction, SIGMOID_OF_DOT, SQUARED_DISTANCE, source_gradients, target_gradients,
};
use lacis_kernels::{EdgeOrder, Isa, Mat, MatMut, Stored, edge_softmax, roof};

use crate::cases::{self, assert_close, dense, longest_row, on_every_machine};
use crate::sddmm::{Bits, ordered, tolerance, unwritten};

fn check_softmax<T: Stored>(a: &Csr, heads: usize, order: EdgeOrder) {
    let wide = |seed| {
        let x = dense::<T>(a.nnz(), heads, seed);
        Dense::<T>::from_fn(a.nnz(), heads, |e, h| x.at(e, h) * 5.0)
    };
    let (scores, dp) = (wide(1), wide(2));
    let p = softmax(a, &scores.cast()).unwrap().cast::<T>();
    let in_order = |x: &Dense<f64>| match order {
        EdgeOrder::Stored => x.clone(),
        EdgeOrder::Caller => rows_in_caller_order(a, x).unwrap(),
    };
    let given = |x: &Dense<T>| in_order(&x.cast()).cast::<T>();
    let truth = in_order(&softmax(a, &scores.cast()).unwrap());
    let ds = in_order(&edge_softmax_backward(a, &p.cast(), &dp.cast()).unwrap());
    let (scores, p, dp) = (given(&scores), given(&p), given(&dp));
    let forward = edge_softmax::Args::<T>::new(a.view(), &scores).unwrap().ordered(order);
    let backward = edge_softmax::Args::<T>::backward(a.view(), &p, &dp).unwrap().ordered(order);
    for (args, truth, what) in [(forward, truth, "softmax"), (backward, ds, "backward")] {
        for (isa, out) in on_every_machine(|isa, threads| {
            let mut out = unwritten(a.nnz(), heads);
            edge_softmax::run(isa, &args, &mut out, threads).unwrap();
            Bits(out)
        }) {
            let what = format!("{what} {} heads={heads}", isa.name());
            assert_close(&out.0, &truth, tolerance::<T>(longest_row(a).min(60.0)), &what);
        }
    }
}

#[test]
fn softmax_for_any_number_of_heads() {
    for heads in [0, 1, 2, 3, 4, 5, 8, 11, 16, 17, 32, 35] {
        for a in cases::matrices(false).iter().chain(&[ordered(20, 15, 200)]) {
            check_softmax::<f32>(a, heads, EdgeOrder::Stored);
            check_softmax::<f32>(a, heads, EdgeOrder::Caller);
        }
    }
    for heads in [1, 3, 8] {
        check_softmax::<f64>(&ordered(20, 15, 200), heads, EdgeOrder::Caller);
        check_softmax::<bf16>(&cases::matrix(13, 11, 60, false), heads, EdgeOrder::Stored);
    }
    check_softmax::<f32>(&ordered(500, 300, 50_000), 4, EdgeOrder::Caller);
}

#[test]
fn softmax_of_extremes() {
    let a = cases::matrix(4, 4, 12, false);
    let extremes = [1e30, -1e30, f64::NEG_INFINITY, f64::NAN, f64::INFINITY, 3.0];
    for (at, extreme) in extremes.into_iter().enumerate() {
        let mut scores = Dense::<f32>::zeros(12, 2);
        scores.row_mut(at)[1] = extreme as f32;
        let truth = softmax(&a, &scores.cast()).unwrap();
        let args = edge_softmax::Args::<f32>::new(a.view(), &scores).unwrap();
        for (isa, out) in on_every_machine(|isa, threads| {
            let mut out = unwritten(12, 2);
            edge_softmax::run(isa, &args, &mut out, threads).unwrap();
            Bits(out)
        }) {
            assert_close(&out.0, &truth, 1e-6, &format!("{extreme} {}", isa.name()));
        }
    }
}

#[test]
fn softmax_of_rows_with_gaps() {
    let a = ordered(7, 5, 30);
    let plain = dense::<f32>(30, 3, 1);
    let mut spread = vec![f32::NAN; 30 * 5];
    (0..30).for_each(|e| spread[e * 5..][..3].copy_from_slice(plain.row(e)));
    let scores = Mat::new(&spread, 30, 3, 5).unwrap();
    for order in [EdgeOrder::Stored, EdgeOrder::Caller] {
        let args = edge_softmax::Args::<f32>::new(a.view(), scores).unwrap().ordered(order);
        let mut data = vec![7.0f32; 30 * 4];
        let out = MatMut::new(&mut data, 30, 3, 4).unwrap();
        edge_softmax::run(Isa::best(), &args, out, &Threads::one()).unwrap();
        let args = edge_softmax::Args::<f32>::new(a.view(), &plain).unwrap().ordered(order);
        let mut right = unwritten::<f32>(30, 3);
        edge_softmax::run(Isa::best(), &args, &mut right, &Threads::one()).unwrap();
        for (e, row) in data.chunks_exact(4).enumerate() {
            assert_eq!((&row[..3], row[3]), (right.row(e), 7.0));
        }
    }
}

/// `x_0 · z_1²`, which is no function of a dot or a distance.
#[derive(Clone, Copy)]
struct Own;

impl RowFunction<f32> for Own {
    fn value(self, x: &[f32], z: &[f32]) -> f32 {
        x[0] * z[1] * z[1]
    }

    fn add_target_gradient(self, [_, z]: [&[f32]; 2], scale: f32, dx: &mut [f32]) {
        dx[0] += scale * z[1] * z[1];
    }

    fn add_source_gradient(self, [x, z]: [&[f32]; 2], scale: f32, dz: &mut [f32]) {
        dz[1] += scale * 2.0 * x[0] * z[1];
    }
}

const OWN: EdgeFunction<'static> = EdgeFunction {
    value: &|x, z| x[0] * z[1] * z[1],
    gradient: &|x, z| {
        let mut grads = (vec![0.0; x.len()], vec![0.0; z.len()]);
        (grads.0[0], grads.1[1]) = (z[1] * z[1], 2.0 * x[0] * z[1]);
        grads
    },
};

fn check_fused<T: Stored, E: edge::EdgeFunction<T>>(
    a: &Csr,
    (k, width): (usize, usize),
    (ours, function): (E, EdgeFunction<'_>),
) {
    let [x, z] = [(a.n_rows(), 1), (a.n_cols(), 2)].map(|(n, seed)| dense::<T>(n, k, seed));
    let (v, dy) = (dense::<T>(a.n_cols(), width, 3), dense::<T>(a.n_rows(), width, 4));
    let [x64, z64, v64] = [&x, &z, &v].map(|x| x.cast::<f64>());
    let truth = FusedEdge { target: &x64, source: &z64, values: &v64, function };
    let y = truth.forward(a).unwrap();
    let grads = truth.backward(a, &dy.cast()).unwrap();
    let weights = Dense::from_vec(grads.weights, a.nnz(), 1).unwrap();
    let transpose = a.transpose(&Threads::one());
    let args = edge::Args::<T>::new(a.view(), &x, &z, &v).unwrap();
    let back = args.backward(&dy).unwrap();
    let results = on_every_machine(|isa, threads| {
        let mut y = unwritten(a.n_rows(), width);
        edge::forward(isa, &args, ours, &mut y, threads).unwrap();
        let (mut dx, mut da) = (unwritten(a.n_rows(), k), unwritten(a.nnz(), 1));
        let outputs = ((&mut dx).into(), Some(da.data_mut()));
        target_gradients(isa, &back, ours, outputs, threads).unwrap();
        let (mut dz, mut dv) = (unwritten(a.n_cols(), k), unwritten(a.n_cols(), width));
        let outputs = ((&mut dz).into(), (&mut dv).into());
        source_gradients(isa, (&back, transpose.view()), ours, outputs, threads).unwrap();
        let mut alone = unwritten(a.n_rows(), k);
        let outputs = ((&mut alone).into(), None);
        target_gradients(isa, &back, ours, outputs, threads).unwrap();
        assert_eq!(cases::bits(&alone), cases::bits(&dx));
        (Bits(y), Bits(dx), Bits(dz), Bits(dv), Bits(da))
    });
    let terms = longest_row(a).max(longest_row(&transpose)) + (k + width) as f64;
    let tolerance = tolerance::<T>(terms) * (4 * k.max(1)) as f64;
    for (isa, (found_y, dx, dz, dv, da)) in results {
        let what = |of: &str| format!("{of} {} k={k} width={width}", isa.name());
        assert_close(&found_y.0, &y, tolerance, &what("y"));
        assert_close(&dx.0, &grads.target, tolerance, &what("dx"));
        assert_close(&dz.0, &grads.source, tolerance, &what("dz"));
        assert_close(&dv.0, &grads.values, tolerance, &what("dv"));
        assert_close(&da.0, &weights, tolerance, &what("da"));
    }
}

#[test]
fn fused_functions_and_their_gradients() {
    let sigmoid = (SIGMOID_OF_DOT, EdgeFunction::SIGMOID_OF_DOT);
    let distance = (SQUARED_DISTANCE, EdgeFunction::SQUARED_DISTANCE);
    for weighted in [false, true] {
        for a in cases::matrices(weighted) {
            for widths in [(1, 1), (16, 16), (5, 33), (34, 7), (0, 3), (3, 0)] {
                check_fused::<f32, _>(&a, widths, sigmoid);
                check_fused::<f32, _>(&a, widths, distance);
            }
            check_fused::<f32, _>(&a, (3, 5), (OfRows(Own), OWN));
            check_fused::<f64, _>(&a, (18, 5), sigmoid);
            check_fused::<bf16, _>(&a, (18, 5), distance);
        }
    }
    check_fused::<f32, _>(&cases::matrix(300, 200, 100_000, true), (3, 2), sigmoid);
}

#[test]
fn a_replay_reads_everything() {
    let a = cases::matrix(13, 11, 60, false);
    for k in [1, 16, 40] {
        let data = vec![1.0f32; 11 * k];
        let x = Mat::new(&data, 11, k, k).unwrap();
        for (isa, sum) in on_every_machine(|isa, threads| {
            let mut y = unwritten(13, k);
            let sum = roof::replay(isa, a.view(), x, (&mut y).into(), threads).unwrap();
            assert!(y.rows().flatten().all(|y| !y.is_nan()));
            sum
        }) {
            // All numbers of the rows; those of a last vector that are read again on top.
            let (least, most) = ((60 * k) as f32, (60 * k.next_multiple_of(16)) as f32);
            assert!((least..=most).contains(&sum), "{} {sum} {least}", isa.name());
        }
    }
    let (x, one) = (dense::<f32>(11, 3, 1), Threads::one());
    let mut short = Dense::zeros(12, 3);
    assert!(roof::replay(Isa::best(), a.view(), (&x).into(), (&mut short).into(), &one).is_err());
}

#[test]
fn sizes_are_checked() {
    let a = cases::matrix(5, 4, 10, false);
    let (x, z, one) = (dense::<f32>(5, 3, 1), dense::<f32>(4, 3, 2), Threads::one());
    assert!(edge_softmax::Args::new(a.view(), &x).is_err());
    let scores = dense::<f32>(10, 2, 1);
    assert!(edge_softmax::Args::backward(a.view(), &scores, &dense::<f32>(10, 1, 1)).is_err());
    let args = edge_softmax::Args::new(a.view(), &scores).unwrap();
    assert!(edge_softmax::run(Isa::best(), &args, &mut Dense::zeros(10, 3), &one).is_err());
    assert!(edge::Args::new(a.view(), &z, &z, &z).is_err());
    assert!(edge::Args::new(a.view(), &x, &dense::<f32>(4, 2, 1), &z).is_err());
    assert!(edge::Args::new(a.view(), &x, &z, &x).is_err());
    let args = edge::Args::new(a.view(), &x, &z, &z).unwrap();
    let mut wrong = Dense::zeros(4, 3);
    assert!(edge::forward(Isa::best(), &args, SIGMOID_OF_DOT, &mut wrong, &one).is_err());
    assert!(args.backward(&z).is_err());
    let back = args.backward(&x).unwrap();
    let outputs = ((&mut wrong).into(), None);
    assert!(target_gradients(Isa::best(), &back, SIGMOID_OF_DOT, outputs, &one).is_err());
    let (mut dz, mut dv) = (Dense::zeros(4, 3), Dense::zeros(4, 3));
    let outputs = ((&mut dz).into(), (&mut dv).into());
    let turned = (&back, a.view());
    assert!(source_gradients(Isa::best(), turned, SIGMOID_OF_DOT, outputs, &one).is_err());
}
