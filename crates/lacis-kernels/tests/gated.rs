//! [`lacis_kernels::gated`] against `lacis_core::reference`.

use half::bf16;
use lacis_core::reference::Gated;
use lacis_core::{Csr, Dense, Threads};
use lacis_kernels::gated::{Args, Grads};
use lacis_kernels::{Isa, Stored};

use crate::cases::{self, assert_close, dense, longest_row, on_every_machine};
use crate::sddmm::{Bits, tolerance, unwritten};

fn check<T: Stored>(a: &Csr, width: usize) {
    let [k, q, v] = [(a.n_rows(), 1), (a.n_cols(), 2), (a.n_cols(), 3)]
        .map(|(n, seed)| dense::<T>(n, width, seed));
    // Gates that are nearly open and nearly shut, too.
    let k = Dense::<T>::from_fn(k.n_rows(), width, |i, j| k.at(i, j) * 8.0);
    let dy = dense::<T>(a.n_rows(), width, 4);
    let [k64, q64, v64] = [&k, &q, &v].map(|x| x.cast::<f64>());
    let truth = Gated { target: &k64, source: &q64, values: &v64 };
    let y = truth.forward(a).unwrap();
    let grads = truth.backward(a, &dy.cast()).unwrap();
    let transpose = a.transpose(&Threads::one());
    let args = Args::<T>::new(a.view(), &k, &q, &v).unwrap();
    let results = on_every_machine(|isa, threads| {
        let mut y = unwritten(a.n_rows(), width);
        args.forward(isa, &mut y, threads).unwrap();
        let mut dk = unwritten(a.n_rows(), width);
        let (mut dq, mut dv) = (unwritten(a.n_cols(), width), unwritten(a.n_cols(), width));
        let out =
            Grads { target: (&mut dk).into(), source: (&mut dq).into(), values: (&mut dv).into() };
        args.backward(isa, (transpose.view(), (&dy).into()), out, threads).unwrap();
        (Bits(y), Bits(dk), Bits(dq), Bits(dv))
    });
    let tolerance = tolerance::<T>(longest_row(a).max(longest_row(&transpose))) * 2.0;
    for (isa, (found, dk, dq, dv)) in results {
        let what = |of: &str| format!("{of} {} width={width}", isa.name());
        assert_close(&found.0, &y, tolerance, &what("y"));
        assert_close(&dk.0, &grads.target, tolerance, &what("dk"));
        assert_close(&dq.0, &grads.source, tolerance, &what("dq"));
        assert_close(&dv.0, &grads.values, tolerance, &what("dv"));
    }
}

#[test]
fn gated_sums_and_their_gradients() {
    for a in cases::matrices(true) {
        for width in [0, 1, 5, 16, 17, 33, 64] {
            check::<f32>(&a, width);
        }
        check::<f64>(&a, 18);
        check::<bf16>(&a, 18);
    }
    check::<f32>(&cases::matrix(300, 200, 50_000, false), 3);
}

#[test]
fn sizes_are_checked() {
    let a = cases::matrix(5, 4, 10, false);
    let (k, q, one) = (dense::<f32>(5, 3, 1), dense::<f32>(4, 3, 2), Threads::one());
    assert!(Args::new(a.view(), &q, &q, &q).is_err());
    assert!(Args::new(a.view(), &k, &dense::<f32>(4, 2, 1), &q).is_err());
    assert!(Args::new(a.view(), &k, &q, &k).is_err());
    let args = Args::new(a.view(), &k, &q, &q).unwrap();
    assert!(args.forward(Isa::best(), &mut Dense::zeros(4, 3), &one).is_err());
    let mut outs = [5, 4, 4].map(|n| Dense::<f32>::zeros(n, 3));
    let mut backward = |transpose: &Csr, grad: &Dense| {
        let [target, source, values] = &mut outs;
        let out = Grads { target: target.into(), source: source.into(), values: values.into() };
        args.backward(Isa::best(), (transpose.view(), grad.into()), out, &one)
    };
    let transpose = a.transpose(&one);
    assert!(backward(&transpose, &k).is_ok());
    assert!(backward(&a, &k).is_err());
    assert!(backward(&transpose, &q).is_err());
}
