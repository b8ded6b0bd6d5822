//! [`lacis_kernels::sddmm`] against `lacis_core::reference`.

use half::bf16;
use lacis_core::reference::{
    EdgeOp, Reduce, Spmm, Ties, in_caller_order, rows_in_caller_order, sddmm, sddmm_backward,
};
use lacis_core::{Coo, Csr, Dense, Element, Extent, Repeats, Rng, Threads};
use lacis_kernels::sddmm::{Args, BackwardArgs, ValuesArgs, backward, run, value_gradients};
use lacis_kernels::{EdgeOrder, Isa, Mat, MatMut, Stored, edges};

use crate::cases::{self, assert_close, bits, dense, longest_row, on_every_machine};

const OPS: [EdgeOp; 3] = [EdgeOp::Dot, EdgeOp::Add, EdgeOp::Mul];
const TIES: [Ties; 3] = [Ties::SplitEvenly, Ties::FirstArgument, Ties::SplitWithInitialZero];
const ORDERS: [EdgeOrder; 2] = [EdgeOrder::Stored, EdgeOrder::Caller];

/// A result, equal to one of the same bits.
pub struct Bits<T: Element>(pub Dense<T>);

impl<T: Element> PartialEq for Bits<T> {
    fn eq(&self, other: &Self) -> bool {
        bits(&self.0) == bits(&other.0)
    }
}

/// A matrix of NaN, none of which may be left.
pub fn unwritten<T: Element>(n_rows: usize, n_cols: usize) -> Dense<T> {
    Dense::from_fn(n_rows, n_cols, |_, _| f64::NAN)
}

/// What rounding may cost a sum of this many terms between -1 and 1.
pub fn tolerance<T: Stored>(terms: f64) -> f64 {
    // In bf16 it is the result that is rounded.
    let stored = if size_of::<T>() == 2 { 1.0 / 256.0 } else { 0.0 };
    let epsilon = if size_of::<T>() == 8 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    (terms + 4.0) * ((terms + 4.0) * epsilon + stored)
}

/// A matrix with a hub, repeats and empty rows that knows the order of a caller's list.
pub fn ordered(n_rows: usize, n_cols: usize, entries: usize) -> Csr {
    let threads = Threads::one();
    let rng = Rng::new(entries as u64, "ordered");
    let index = |of: usize, lane: usize| -> Vec<u32> {
        (0..entries).map(|e| rng.block(e as u64)[lane] % of as u32).collect()
    };
    let (mut rows, cols) = (index(n_rows.div_ceil(2), 0), index(n_cols, 1));
    rows.iter_mut().step_by(3).for_each(|row| *row = 0);
    let values: Vec<f32> = (0..entries).map(|e| (e % 7) as f32 * 0.25 - 0.5).collect();
    let coo = Coo::from_slices(&rows, &cols, Some(&values), &threads).unwrap();
    let extent = Extent { n_rows: Some(n_rows), n_cols: Some(n_cols) };
    let csr = coo.into_csr(extent, Repeats::Keep, &threads).unwrap();
    // Turned twice, it knows for each entry where it stands in the first turn.
    let turned = csr.transpose(&threads).transpose_with_order(&threads).unwrap();
    assert!(turned.order().is_some());
    turned
}

fn check<T: Stored>(a: &Csr, k: usize, order: EdgeOrder) {
    let [u, v] = [(a.n_rows(), 1), (a.n_cols(), 2)].map(|(n, seed)| dense::<T>(n, k, seed));
    for op in OPS {
        let mut truth = sddmm(a, &u.cast(), &v.cast(), op).unwrap();
        if order == EdgeOrder::Caller {
            truth = rows_in_caller_order(a, &truth).unwrap();
        }
        let args = Args::<T>::new(a.view(), &u, &v, op).unwrap().ordered(order);
        let results = on_every_machine(|isa, threads| {
            let mut out = unwritten(a.nnz(), args.width());
            run(isa, &args, &mut out, threads).unwrap();
            Bits(out)
        });
        for (isa, out) in results {
            let what = format!("{op:?} {} k={k}", isa.name());
            assert_close(&out.0, &truth, tolerance::<T::Sum>(k as f64), &what);
        }
    }
}

#[test]
fn all_widths_and_types() {
    for k in (0..=50).chain([63, 64, 65, 128, 130]) {
        check::<f32>(&cases::matrix(13, 11, 60, true), k, EdgeOrder::Stored);
    }
    for k in [0, 1, 15, 16, 17, 40] {
        check::<f64>(&cases::matrix(13, 11, 60, false), k, EdgeOrder::Stored);
        check::<bf16>(&cases::matrix(13, 11, 60, false), k, EdgeOrder::Stored);
    }
}

#[test]
fn every_matrix_in_both_orders() {
    for a in cases::matrices(true).iter().chain(&[ordered(20, 15, 200), ordered(1, 1, 3)]) {
        ORDERS.iter().for_each(|&order| check::<f32>(a, 19, order));
    }
}

#[test]
fn spans_that_begin_within_a_hub_and_many_blocks() {
    let a = ordered(500, 300, 70_000);
    ORDERS.iter().for_each(|&order| check::<f32>(&a, 3, order));
}

#[test]
fn heads_are_dots_of_equal_parts() {
    let a = cases::matrix(13, 11, 60, false);
    for (heads, width) in [(2, 3), (3, 16), (8, 8), (4, 17), (1, 5)] {
        let [u, v] = [(13, 1), (11, 2)].map(|(n, seed)| dense::<f32>(n, heads * width, seed));
        let part = |x: &Dense<f32>, h: usize| {
            Dense::<f64>::from_fn(x.n_rows(), width, |i, c| x.at(i, h * width + c))
        };
        let dots: Vec<_> = (0..heads)
            .map(|h| sddmm(&a, &part(&u, h), &part(&v, h), EdgeOp::Dot).unwrap())
            .collect();
        let truth = Dense::from_fn(a.nnz(), heads, |e, h| dots[h].at(e, 0));
        let args = Args::<f32>::new(a.view(), &u, &v, EdgeOp::Dot).unwrap().heads(heads).unwrap();
        for (isa, out) in on_every_machine(|isa, threads| {
            let mut out = unwritten(a.nnz(), heads);
            run(isa, &args, &mut out, threads).unwrap();
            Bits(out)
        }) {
            assert_close(&out.0, &truth, tolerance::<f32>(width as f64), isa.name());
        }
        check_heads_backward(&a, &u, heads);
    }
    let x = dense::<f32>(11, 6, 1);
    let square = cases::matrix(11, 11, 40, false);
    assert!(Args::new(square.view(), &x, &x, EdgeOp::Dot).unwrap().heads(4).is_err());
    assert!(Args::new(square.view(), &x, &x, EdgeOp::Dot).unwrap().heads(0).is_err());
    assert!(Args::new(square.view(), &x, &x, EdgeOp::Add).unwrap().heads(2).is_err());
}

/// The gradient of `v` for dots of several heads.
fn check_heads_backward(a: &Csr, u: &Dense<f32>, heads: usize) {
    let (k, threads) = (u.n_cols(), Threads::one());
    let width = k / heads;
    let grad = dense::<f32>(a.nnz(), heads, 5);
    let transpose = a.transpose_with_order(&threads).unwrap();
    let mut truth = Dense::<f64>::zeros(a.n_cols(), k);
    for (e, (i, j, _)) in a.entries().enumerate() {
        (0..k).for_each(|c| truth.row_mut(j)[c] += grad.at(e, c / width) * u.at(i, c));
    }
    let args = BackwardArgs::<f32>::new(transpose.view(), u, EdgeOp::Dot, &grad).unwrap();
    let args = args.ordered(EdgeOrder::Caller);
    for (isa, dv) in on_every_machine(|isa, threads| {
        let mut dv = unwritten(a.n_cols(), k);
        backward(isa, &args, &mut dv, threads).unwrap();
        Bits(dv)
    }) {
        assert_close(&dv.0, &truth, tolerance::<f32>(60.0), isa.name());
    }
}

fn check_backward<T: Stored>(a: &Csr, k: usize) {
    let one = Threads::one();
    let [u, v] = [(a.n_rows(), 1), (a.n_cols(), 2)].map(|(n, seed)| dense::<T>(n, k, seed));
    let transpose = a.transpose_with_order(&one).unwrap();
    for op in OPS {
        let width = if op == EdgeOp::Dot { 1 } else { k };
        let grad = dense::<T::Sum>(a.nnz(), width, 3);
        let caller = rows_in_caller_order(a, &grad.cast()).unwrap().cast::<T::Sum>();
        let (du, dv) = sddmm_backward(a, &u.cast(), &v.cast(), op, &grad.cast()).unwrap();
        let at_targets = BackwardArgs::<T>::new(a.view(), &v, op, &grad).unwrap();
        let same = BackwardArgs::<T>::new(a.view(), &v, op, &caller).unwrap();
        let same = same.ordered(EdgeOrder::Caller);
        let at_sources = BackwardArgs::<T>::new(transpose.view(), &u, op, &caller).unwrap();
        let at_sources = at_sources.ordered(EdgeOrder::Caller);
        for (args, truth) in [(at_targets, &du), (same, &du), (at_sources, &dv)] {
            for (isa, y) in on_every_machine(|isa, threads| {
                let mut y = unwritten(truth.n_rows(), k);
                backward(isa, &args, &mut y, threads).unwrap();
                Bits(y)
            }) {
                let terms = longest_row(a).max(longest_row(&transpose));
                let what = format!("{op:?} {} k={k}", isa.name());
                assert_close(&y.0, truth, tolerance::<T>(terms), &what);
            }
        }
    }
}

#[test]
fn gradients_at_both_ends() {
    for a in cases::matrices(true).iter().chain(&[ordered(20, 15, 200)]) {
        for k in [1, 5, 16, 33] {
            check_backward::<f32>(a, k);
        }
        check_backward::<f64>(a, 18);
        check_backward::<bf16>(a, 18);
    }
    check_backward::<f32>(&ordered(500, 300, 50_000), 3);
}

/// Multiples of a quarter: messages are exact in single precision, and tie as often as in double.
fn quarters<T: Element>(n_rows: usize, n_cols: usize, seed: u64) -> Dense<T> {
    let rng = Rng::new(seed, "quarters");
    let value = |i: usize, j: usize| f64::from(rng.block_at(i as u64, j as u32)[0] % 9) - 4.0;
    Dense::from_fn(n_rows, n_cols, |i, j| value(i, j) * 0.25)
}

fn check_values<T: Stored>(a: &Csr, k: usize, scaled: bool, reduces: &[Reduce]) {
    let (x, dy) = (quarters::<T>(a.n_cols(), k, 6), quarters::<T>(a.n_rows(), k, 7));
    let left: Vec<f64> = (0..a.n_rows()).map(|i| 0.5 + (i % 5) as f64 * 0.25).collect();
    let right: Vec<f64> = (0..a.n_cols()).map(|j| 1.5 - (j % 3) as f64 * 0.5).collect();
    let narrow = |v: &[f64]| -> Vec<T::Sum> { v.iter().map(|&v| T::Sum::from_f64(v)).collect() };
    let scales = scaled.then(|| (narrow(&left), narrow(&right)));
    for (reduce, ties) in reduces.iter().flat_map(|r| TIES.map(|ties| (*r, ties))) {
        // Only a maximum or minimum has ties.
        if !matches!(reduce, Reduce::Max | Reduce::Min) && ties != Ties::SplitEvenly {
            continue;
        }
        let mut spmm = Spmm { ties, ..Spmm::new(reduce) };
        let mut args = ValuesArgs::<T>::new(a.view(), &x, &dy, reduce).unwrap().ties(ties);
        if let Some((l, r)) = &scales {
            (spmm.left, spmm.right) = (Some(&left[..]), Some(&right[..]));
            args = args.scaled(Some(l), Some(r)).unwrap();
        }
        let stored = spmm.backward(a, &x.cast(), &dy.cast()).unwrap().values;
        for order in ORDERS {
            let caller = || in_caller_order(a, &stored).unwrap();
            let truth = if order == EdgeOrder::Caller { caller() } else { stored.clone() };
            let truth = Dense::from_vec(truth, a.nnz(), 1).unwrap();
            let args = args.ordered(order);
            for (isa, out) in on_every_machine(|isa, threads| {
                let mut out = unwritten(a.nnz(), 1);
                value_gradients(isa, &args, out.data_mut(), threads).unwrap();
                Bits(out)
            }) {
                let what = format!("{reduce:?} {ties:?} {} k={k}", isa.name());
                assert_close(&out.0, &truth, tolerance::<T::Sum>(k as f64 + 20.0), &what);
            }
        }
    }
}

#[test]
fn gradients_of_edge_values_for_every_reduce() {
    for a in cases::matrices(true).iter().chain(&[ordered(20, 15, 200)]) {
        check_values::<f32>(a, 5, false, &Reduce::ALL);
        check_values::<f32>(a, 33, true, &Reduce::ALL);
        check_values::<f64>(a, 17, true, &Reduce::ALL);
        check_values::<bf16>(a, 16, false, &Reduce::ALL);
    }
    check_values::<f32>(&cases::matrix(9, 9, 40, false), 0, false, &Reduce::ALL);
    let hub = ordered(300, 300, 40_000);
    check_values::<f32>(&hub, 2, true, &[Reduce::Mean, Reduce::Max, Reduce::Min]);
}

#[test]
fn nan_stays_and_infinity_at_the_neighbours_does_not_come_in() {
    let a = cases::matrix(6, 6, 20, false);
    let mut x = quarters::<f32>(6, 5, 1);
    let dy = quarters::<f32>(6, 5, 2);
    x.row_mut(2)[4] = f32::NAN;
    x.row_mut(3)[0] = f32::INFINITY;
    let truth = sddmm(&a, &dy.cast(), &x.cast(), EdgeOp::Dot).unwrap();
    let args = Args::<f32>::new(a.view(), &dy, &x, EdgeOp::Dot).unwrap();
    for (isa, out) in on_every_machine(|isa, threads| {
        let mut out = unwritten(a.nnz(), 1);
        run(isa, &args, &mut out, threads).unwrap();
        Bits(out)
    }) {
        assert_close(&out.0, &truth, tolerance::<f32>(20.0), isa.name());
    }
    x.row_mut(3)[0] = 1.0;
    for (reduce, ties) in [Reduce::Max, Reduce::Min].iter().flat_map(|r| TIES.map(|t| (*r, t))) {
        let spmm = Spmm { ties, ..Spmm::new(reduce) };
        let truth = spmm.backward(&a, &x.cast(), &dy.cast()).unwrap().values;
        let truth = Dense::from_vec(truth, a.nnz(), 1).unwrap();
        let args = ValuesArgs::<f32>::new(a.view(), &x, &dy, reduce).unwrap().ties(ties);
        let mut out = unwritten(a.nnz(), 1);
        value_gradients(Isa::best(), &args, out.data_mut(), &Threads::one()).unwrap();
        // Where one entry gets everything the others get nothing, not 0 times a NaN.
        if ties != Ties::FirstArgument {
            assert_close(&out, &truth, tolerance::<f32>(20.0), &format!("{reduce:?} {ties:?}"));
        }
    }
}

#[test]
fn gaps_between_rows_are_neither_read_nor_written() {
    let a = ordered(7, 5, 30);
    let plain = [dense::<f32>(7, 18, 1), dense::<f32>(5, 18, 2)];
    let spread = plain.each_ref().map(|x| {
        let mut data = vec![f32::NAN; x.n_rows() * 21];
        (0..x.n_rows()).for_each(|i| data[i * 21..][..18].copy_from_slice(x.row(i)));
        data
    });
    let [u, v] = [0, 1].map(|m| Mat::new(&spread[m], plain[m].n_rows(), 18, 21).unwrap());
    for order in ORDERS {
        for op in OPS {
            let args = Args::<f32>::new(a.view(), u, v, op).unwrap().ordered(order);
            let width = args.width();
            let mut data = vec![7.0f32; a.nnz() * (width + 2)];
            let out = MatMut::new(&mut data, a.nnz(), width, width + 2).unwrap();
            run(Isa::best(), &args, out, &Threads::one()).unwrap();
            let args = Args::<f32>::new(a.view(), &plain[0], &plain[1], op).unwrap();
            let mut right = unwritten::<f32>(a.nnz(), width);
            run(Isa::best(), &args.ordered(order), &mut right, &Threads::one()).unwrap();
            for (e, row) in data.chunks_exact(width + 2).enumerate() {
                assert_eq!(&row[..width], right.row(e));
                assert_eq!(row[width..], [7.0; 2]);
            }
        }
    }
}

#[test]
fn orders_turn_into_each_other() {
    let a = ordered(50, 40, 70_000);
    let stored = dense::<f32>(a.nnz(), 3, 1);
    let truth = rows_in_caller_order(&a, &stored.cast()).unwrap();
    for (_, caller) in on_every_machine(|_, threads| {
        let mut caller = unwritten(a.nnz(), 3);
        edges::in_caller_order(a.view(), &stored, &mut caller, threads).unwrap();
        let mut back = unwritten(a.nnz(), 3);
        edges::in_stored_order(a.view(), &caller, &mut back, threads).unwrap();
        assert_eq!(back, stored);
        Bits(caller)
    }) {
        assert_close(&caller.0, &truth, 0.0, "caller's order");
    }
    let (one, mut short) = (Threads::one(), Dense::<f32>::zeros(3, 3));
    assert!(edges::in_caller_order(a.view(), &stored, &mut short, &one).is_err());
    assert!(edges::in_stored_order(a.view(), &stored, &mut short, &one).is_err());
}

#[test]
fn sizes_are_checked() {
    let a = cases::matrix(5, 4, 10, false);
    let (u, v, one) = (dense::<f32>(5, 3, 1), dense::<f32>(4, 3, 2), Threads::one());
    assert!(Args::new(a.view(), &v, &v, EdgeOp::Dot).is_err());
    assert!(Args::new(a.view(), &u, &u, EdgeOp::Dot).is_err());
    assert!(Args::new(a.view(), &u, &dense::<f32>(4, 2, 2), EdgeOp::Dot).is_err());
    let args = Args::new(a.view(), &u, &v, EdgeOp::Dot).unwrap();
    assert!(args.scaled(Some(&[1.0; 4]), None).is_err());
    assert!(args.scaled(None, Some(&[1.0; 5])).is_err());
    assert!(run(Isa::best(), &args, &mut Dense::zeros(9, 1), &one).is_err());
    assert!(run(Isa::best(), &args, &mut Dense::zeros(10, 3), &one).is_err());
    let grad = Dense::<f32>::zeros(10, 3);
    assert!(BackwardArgs::new(a.view(), &u, EdgeOp::Add, &grad).is_err());
    assert!(BackwardArgs::new(a.view(), &v, EdgeOp::Add, &Dense::zeros(10, 1)).is_err());
    assert!(BackwardArgs::new(a.view(), &v, EdgeOp::Dot, &Dense::zeros(10, 2)).is_err());
    let args = BackwardArgs::new(a.view(), &v, EdgeOp::Add, &grad).unwrap();
    assert!(backward(Isa::best(), &args, &mut Dense::zeros(4, 3), &one).is_err());
    let args = ValuesArgs::new(a.view(), &v, &u, Reduce::Max).unwrap();
    assert!(value_gradients(Isa::best(), &args, &mut [0.0; 9], &one).is_err());
    assert!(ValuesArgs::new(a.view(), &u, &v, Reduce::Max).is_err());
}
