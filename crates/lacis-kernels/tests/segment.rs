//! [`lacis_kernels::segment`] against `lacis_core::reference`.

use std::sync::OnceLock;

use half::bf16;
use lacis_core::reference::{self, Axis, Reduce, Ties};
use lacis_core::{Buffer, Dense, Element, Rng, RowPtrView, Threads};
use lacis_kernels::segment::backward::Backward;
use lacis_kernels::segment::elements::{IndexMatrix, Scatter, gather};
use lacis_kernels::segment::reduce::{Args, KERNELS, choose};
use lacis_kernels::segment::{Groups, Index, Segments, select, softmax};
use lacis_kernels::{Isa, Mat, MatMut, Stored};

use crate::cases::{THREADS, assert_close, bits, dense, matrices, on_every_machine};

const AXES: [Axis; 2] = [Axis::Rows, Axis::Cols];
const TIES: [Ties; 3] = [Ties::SplitEvenly, Ties::FirstArgument, Ties::SplitWithInitialZero];
/// Lengths, segments.
const SIZES: [(usize, usize); 6] = [(0, 2), (1, 1), (7, 3), (60, 11), (60, 90), (300, 5)];
const WIDTHS: [usize; 7] = [1, 2, 3, 16, 17, 64, 67];

/// Positions below `n`; a third of them are one hub.
fn positions(len: usize, n: usize, seed: u64) -> Vec<u32> {
    let rng = Rng::new(seed, "index");
    let at = |e: usize| {
        let [a, b, ..] = rng.block(e as u64);
        if a % 3 == 0 { n as u32 / 2 } else { b % n as u32 }
    };
    (0..len).map(at).collect()
}

/// `len` along the axis, `k` across.
fn matrix<T: Stored>(len: usize, k: usize, axis: Axis, seed: u64) -> Dense<T> {
    match axis {
        Axis::Rows => dense(len, k, seed),
        Axis::Cols => dense(k, len, seed),
    }
}

/// As [`matrix`], of few different numbers, so that there are ties and zeros.
fn with_ties<T: Stored>(len: usize, k: usize, axis: Axis) -> Dense<T> {
    let x = matrix::<T>(len, k, axis, 3);
    Dense::from_fn(x.n_rows(), x.n_cols(), |i, j| (x.at(i, j) * 2.0).round())
}

fn like<T: Stored>(x: &Dense<f64>) -> Dense<T> {
    Dense::from_fn(x.n_rows(), x.n_cols(), |_, _| f64::NAN)
}

/// What rounding may cost a result of `terms` numbers of this magnitude.
fn tolerance<T: Stored>(terms: usize, magnitude: f64) -> f64 {
    let sum = match T::DTYPE {
        lacis_core::DType::F64 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    };
    let stored = if T::DTYPE == lacis_core::DType::Bf16 { 1.0 / 128.0 } else { 0.0 };
    let terms = terms.max(1) as f64;
    magnitude * (terms * (terms + 4.0) * sum + stored * terms.min(4.0))
}

/// The largest magnitude, at least 1.
fn largest(y: &Dense<f64>) -> f64 {
    y.rows().flatten().fold(1f64, |max, y| max.max(y.abs()))
}

fn longest(index: &[u32], n: usize) -> usize {
    let mut counts = vec![0; n];
    index.iter().for_each(|&s| counts[s as usize] += 1);
    counts.into_iter().max().unwrap_or(0)
}

/// `run` on every machine is close to the truth.
fn check<T: Stored>(
    truth: &Dense<f64>,
    tolerance: f64,
    what: &str,
    run: impl Fn(Isa, &mut Dense<T>, &Threads),
) {
    for isa in Isa::available() {
        let [one, two, seven] = pools().each_ref().map(|threads| {
            let mut y = like::<T>(truth);
            run(isa, &mut y, threads);
            y
        });
        assert!(bits(&one) == bits(&two) && bits(&one) == bits(&seven), "{what} {}", isa.name());
        assert_close(&one, truth, tolerance, &format!("{what} {}", isa.name()));
    }
}

/// 1, 2 and 7 threads, made once: these tests are many and small.
fn pools() -> &'static [Threads; 3] {
    static POOLS: OnceLock<[Threads; 3]> = OnceLock::new();
    POOLS.get_or_init(|| THREADS.map(|count| Threads::new(count).unwrap()))
}

fn reduces<T: Stored>(widths: &[usize]) {
    let one = Threads::one();
    for ((len, n), axis) in SIZES.iter().flat_map(|&size| AXES.map(|axis| (size, axis))) {
        let at = positions(len, n, 1);
        let mut sorted = at.clone();
        sorted.sort_unstable();
        for (at, grouped) in [(&at, false), (&at, true), (&sorted, false), (&sorted, true)] {
            let index = Index::new(at, n, &one).unwrap();
            let groups = Groups::new(index.clone(), &one);
            let segments = if grouped { groups.segments() } else { Segments::from_index(&index) };
            for (&k, reduce) in widths.iter().flat_map(|k| Reduce::ALL.map(|reduce| (k, reduce))) {
                let x = matrix::<T>(len, k, axis, 2);
                let truth = reference::scatter(&x.cast(), at, n, reduce, axis).unwrap();
                let largest = largest(&truth);
                let args = Args::new(&x, segments, reduce, axis).unwrap();
                assert!(choose(&args).accepts(&args));
                for kernel in KERNELS.iter().filter(|kernel| kernel.accepts(&args)) {
                    let what = format!("{} {reduce:?} {axis:?} {len} {n} {k}", kernel.name);
                    let tolerance = tolerance::<T>(longest(at, n), largest);
                    check::<T>(&truth, tolerance, &what, |isa, y, threads| {
                        kernel.run(isa, &args, y, threads).unwrap();
                    });
                }
            }
        }
    }
}

#[test]
fn reduces_of_singles() {
    reduces::<f32>(&WIDTHS);
}

#[test]
fn reduces_of_rows_wider_than_a_strip() {
    reduces::<f32>(&[1030]);
}

#[test]
fn reduces_of_doubles_and_halves() {
    reduces::<f64>(&[1, 18]);
    reduces::<bf16>(&[1, 18]);
}

#[test]
fn many_chunks_blocks_and_slices() {
    let one = Threads::one();
    let (len, n) = (1_200_000, 100_000);
    let at = positions(len, n, 5);
    let x = Dense::<f32>::from_fn(len, 1, |i, _| if i % 3 == 0 { 1.0 } else { -0.5 });
    let index = Index::new(&at, n, &one).unwrap();
    let groups = Groups::new(index.clone(), &one);
    for reduce in [Reduce::Sum, Reduce::Mean, Reduce::Max] {
        let truth = reference::scatter(&x.cast(), &at, n, reduce, Axis::Rows).unwrap();
        for segments in [Segments::from_index(&index), groups.segments()] {
            let args = Args::new(&x, segments, reduce, Axis::Rows).unwrap();
            for kernel in KERNELS.iter().filter(|kernel| kernel.accepts(&args)) {
                let run = |count| {
                    let mut y = Dense::zeros(n, 1);
                    let threads = Threads::new(count).unwrap();
                    kernel.run(Isa::best(), &args, &mut y, &threads).unwrap();
                    y
                };
                let y = run(1);
                assert_eq!(bits(&y), bits(&run(3)), "{}", kernel.name);
                // Halves are exact.
                assert_close(&y, &truth, 1e-6, kernel.name);
            }
        }
    }
}

#[test]
fn adding_onto_what_is_there() {
    let one = Threads::one();
    for ((len, n), axis) in SIZES.iter().flat_map(|&size| AXES.map(|axis| (size, axis))) {
        let at = positions(len, n, 4);
        let index = Index::new(&at, n, &one).unwrap();
        for k in [1, 16, 35] {
            let (x, y) = (matrix::<f32>(len, k, axis, 1), matrix::<f32>(n, k, axis, 2));
            let truth = reference::index_add(&y.cast(), &at, &x.cast(), axis).unwrap();
            let args = Args::index_add(&x, Segments::from_index(&index), axis).unwrap();
            for kernel in KERNELS.iter().filter(|kernel| kernel.accepts(&args)) {
                let tolerance = tolerance::<f32>(longest(&at, n) + 1, 1.0);
                check::<f32>(&truth, tolerance, kernel.name, |isa, out, threads| {
                    *out = y.clone();
                    kernel.run(isa, &args, out, threads).unwrap();
                });
            }
        }
    }
}

#[test]
fn pointers_are_sorted_indices() {
    let ptr = [0u64, 2, 2, 5, 9];
    let at = [0, 0, 2, 2, 2, 3, 3, 3, 3];
    let narrow: Vec<u32> = ptr.iter().map(|&p| p as u32).collect();
    for view in [RowPtrView::Wide(&ptr), RowPtrView::Narrow(&narrow)] {
        let segments = Segments::from_ptr(view, 9).unwrap();
        for (axis, reduce) in AXES.iter().flat_map(|&a| Reduce::ALL.map(|reduce| (a, reduce))) {
            let x = matrix::<f32>(9, 5, axis, 2);
            let truth = reference::scatter(&x.cast(), &at, 4, reduce, axis).unwrap();
            let args = Args::new(&x, segments, reduce, axis).unwrap();
            check::<f32>(&truth, 1e-5, "pointers", |isa, y, threads| {
                choose(&args).run(isa, &args, y, threads).unwrap();
            });
        }
    }
    for wrong in [&[][..], &[1, 9], &[0, 5, 4, 9], &[0, 8], &[0, u64::MAX]] {
        assert!(Segments::from_ptr(RowPtrView::Wide(wrong), 9).is_err());
    }
}

#[test]
fn edges_of_every_kind_of_matrix() {
    let one = Threads::one();
    for a in matrices(false) {
        let rows: Vec<u32> = a.entries().map(|(i, _, _)| i as u32).collect();
        let x = dense::<f32>(a.nnz(), 21, 6);
        let by_row = Segments::from_ptr(a.row_ptr().view(), a.nnz()).unwrap();
        let index = Index::new(a.cols(), a.n_cols(), &one).unwrap();
        let by_col = Segments::from_index(&index);
        for (at, n, by) in [(&rows[..], a.n_rows(), by_row), (a.cols(), a.n_cols(), by_col)] {
            let tolerance = tolerance::<f32>(longest(at, n), 1.0);
            for reduce in Reduce::ALL {
                let truth = reference::scatter(&x.cast(), at, n, reduce, Axis::Rows).unwrap();
                let args = Args::new(&x, by, reduce, Axis::Rows).unwrap();
                check::<f32>(&truth, tolerance, "edges", |isa, y, threads| {
                    choose(&args).run(isa, &args, y, threads).unwrap();
                });
            }
            let segments = reference::Segments::from_index(at, n).unwrap();
            let truth = reference::segment_softmax(&x.cast(), &segments, Axis::Rows).unwrap();
            let args = softmax::Args::new(&x, by, Axis::Rows).unwrap();
            check::<f32>(&truth, tolerance, "softmax of edges", |isa, y, threads| {
                args.run(isa, y, threads).unwrap();
            });
        }
    }
}

/// Arguments, by the reference's own rule.
fn arguments(x: &Dense<f64>, at: &[u32], n: usize, reduce: Reduce) -> Vec<u32> {
    let mut all = Vec::new();
    for (s, c) in (0..n).flat_map(|s| (0..x.n_cols()).map(move |c| (s, c))) {
        let items: Vec<usize> = (0..at.len()).filter(|&i| at[i] as usize == s).collect();
        let values: Vec<f64> = items.iter().map(|&i| x.at(i, c)).collect();
        all.push(reduce.argument(&values).map_or(u32::MAX, |best| items[best] as u32));
    }
    all
}

fn gradients<T: Stored>(widths: &[usize]) {
    let one = Threads::one();
    for ((len, n), axis) in SIZES.iter().flat_map(|&size| AXES.map(|axis| (size, axis))) {
        let at = positions(len, n, 7);
        let index = Index::new(&at, n, &one).unwrap();
        let groups = Groups::new(index.clone(), &one);
        for (&k, segments) in
            widths.iter().flat_map(|k| [(k, Segments::from_index(&index)), (k, groups.segments())])
        {
            let (mut x, dy) = (with_ties::<T>(len, k, axis), matrix::<T>(n, k, axis, 8));
            if len > 10 {
                x.row_mut(0)[0] = T::from_f64(f64::NAN);
            }
            for (reduce, ties) in Reduce::ALL.iter().flat_map(|&r| TIES.map(|ties| (r, ties))) {
                let (wide, dy_wide) = (x.cast(), dy.cast());
                let by = reference::Segments::from_index(&at, n).unwrap();
                let rule = (reduce, ties);
                let truth =
                    reference::segment_reduce_backward(&wide, &by, rule, axis, &dy_wide).unwrap();
                let args = Args::new(&x, segments, reduce, axis).unwrap();
                let what = format!("{reduce:?} {ties:?} {axis:?} {len} {n} {k}");
                let tolerance = tolerance::<T>(if reduce == Reduce::Mul { 4 } else { 1 }, 4.0);
                let chooses = matches!(reduce, Reduce::Max | Reduce::Min);
                check::<T>(&truth, tolerance, &what, |isa, dx, threads| {
                    let size = n * k;
                    let (mut places, mut y) = (vec![7; size], matrix::<T>(n, k, axis, 1));
                    let backward = if chooses && ties == Ties::FirstArgument {
                        args.run_with_argument(isa, &mut y, &mut places, threads).unwrap();
                        Backward::with_arguments(args, &places, &dy).unwrap()
                    } else {
                        Backward::new(args, ties, &dy).unwrap()
                    };
                    backward.run(isa, dx, threads).unwrap();
                });
            }
        }
    }
}

#[test]
fn gradients_of_singles() {
    gradients::<f32>(&[1, 3, 16, 37]);
}

#[test]
fn gradients_of_doubles_and_halves() {
    gradients::<f64>(&[1, 18]);
    gradients::<bf16>(&[1, 18]);
}

#[test]
fn arguments_are_the_first_of_equals() {
    let one = Threads::one();
    for (len, n) in SIZES {
        let at = positions(len, n, 9);
        let index = Index::new(&at, n, &one).unwrap();
        for (k, reduce) in [1, 5, 16, 40].iter().flat_map(|&k| [(k, Reduce::Max), (k, Reduce::Min)])
        {
            let mut x = with_ties::<f32>(len, k, Axis::Rows);
            if len > 10 {
                x.row_mut(1)[0] = f32::NAN;
                x.row_mut(4)[0] = f32::NAN;
            }
            let expected = arguments(&x.cast(), &at, n, reduce);
            let args = Args::new(&x, Segments::from_index(&index), reduce, Axis::Rows).unwrap();
            let turned = Dense::<f32>::from_fn(k, len, |c, i| x.at(i, c));
            let across =
                Args::new(&turned, Segments::from_index(&index), reduce, Axis::Cols).unwrap();
            let truth = reference::scatter(&x.cast(), &at, n, reduce, Axis::Rows).unwrap();
            on_every_machine(|isa, threads| {
                let (mut y, mut places) = (Dense::zeros(n, k), vec![7; n * k]);
                args.run_with_argument(isa, &mut y, &mut places, threads).unwrap();
                assert_eq!(places, expected, "{reduce:?} {len} {n} {k}");
                assert_close(&y, &truth, 0.0, "maxima");
                let (mut y, mut places) = (Dense::zeros(k, n), vec![7; n * k]);
                across.run_with_argument(isa, &mut y, &mut places, threads).unwrap();
                let places = |s: usize, c: usize| places[c * n + s];
                assert!(
                    (0..n * k).all(|at| places(at / k, at % k) == expected[at / k * k + at % k])
                );
            });
            let sum = Args::new(&x, Segments::from_index(&index), Reduce::Sum, Axis::Rows).unwrap();
            let mut places = vec![0; n * k];
            let mut y = Dense::zeros(n, k);
            assert!(sum.run_with_argument(Isa::best(), &mut y, &mut places, &one).is_err());
            assert!(args.run_with_argument(Isa::best(), &mut y, &mut [0; 999], &one).is_err());
            assert!(Backward::new(args, Ties::FirstArgument, &y).is_err());
        }
    }
}

fn selects<T: Stored>(widths: &[usize]) {
    let one = Threads::one();
    for ((len, n), axis) in SIZES.iter().flat_map(|&size| AXES.map(|axis| (size, axis))) {
        let at = positions(len, n, 11);
        let index = Index::new(&at, n, &one).unwrap();
        for &k in widths {
            let x = matrix::<T>(n, k, axis, 12);
            let truth = reference::index_select(&x.cast(), &at, axis).unwrap();
            let args = select::Args::new(&x, &index, axis).unwrap();
            check::<T>(&truth, 0.0, "select", |isa, y, threads| {
                args.run(isa, y, threads).unwrap();
            });
            let two = T::Sum::from_f64(2.0);
            let factors = vec![two; n];
            let twice = Dense::from_fn(truth.n_rows(), truth.n_cols(), |i, j| truth.at(i, j) * 2.0);
            check::<T>(&twice, 0.0, "scaled select", |isa, y, threads| {
                args.scaled(&factors).unwrap().run(isa, y, threads).unwrap();
            });
        }
    }
}

#[test]
fn selecting() {
    selects::<f32>(&WIDTHS);
    selects::<f64>(&[1, 18]);
    selects::<bf16>(&[1, 18]);
}

fn softmaxes<T: Stored>(widths: &[usize]) {
    let one = Threads::one();
    for ((len, n), axis) in SIZES.iter().flat_map(|&size| AXES.map(|axis| (size, axis))) {
        let mut at = positions(len, n, 13);
        for sorted in [false, true] {
            if sorted {
                at.sort_unstable();
            }
            let index = Index::new(&at, n, &one).unwrap();
            let (segments, by) =
                (Segments::from_index(&index), reference::Segments::from_index(&at, n).unwrap());
            for &k in widths {
                let (mut x, dy) = (matrix::<T>(len, k, axis, 1), matrix::<T>(len, k, axis, 2));
                if len > 10 {
                    x.row_mut(0)[0] = T::from_f64(80.0);
                }
                let y = reference::segment_softmax(&x.cast(), &by, axis).unwrap();
                let tolerance = tolerance::<T>(longest(&at, n).min(20), 1.0);
                let args = softmax::Args::new(&x, segments, axis).unwrap();
                check::<T>(&y, tolerance, "softmax", |isa, y, threads| {
                    args.run(isa, y, threads).unwrap();
                });
                let stored = y.cast::<T>();
                let dx = reference::segment_softmax_backward(&stored.cast(), &by, axis, &dy.cast());
                let args = softmax::Backward::new(&stored, segments, axis, &dy).unwrap();
                check::<T>(&dx.unwrap(), tolerance, "softmax backward", |isa, dx, threads| {
                    args.run(isa, dx, threads).unwrap();
                });
            }
        }
    }
}

#[test]
fn softmax_and_its_backward() {
    softmaxes::<f32>(&[1, 3, 16, 19, 40]);
    softmaxes::<f64>(&[1, 18]);
    softmaxes::<bf16>(&[1, 18]);
}

fn elements<T: Stored>(len: usize, n: usize, k: usize, axis: Axis) {
    let one = Threads::one();
    let (x, dy) = (with_ties::<T>(len, k, axis), matrix::<T>(n, k, axis, 8));
    let at = positions(len * k, n, 17);
    let truth_index = reference::IndexMatrix::new(x.n_rows(), x.n_cols(), at.clone()).unwrap();
    let index = Index::new(&at, n, &one).unwrap();
    let index = IndexMatrix::new(&index, x.n_rows(), x.n_cols()).unwrap();
    let what = |name| format!("{name} {axis:?} {len} {n} {k}");
    let truth = reference::gather(&dy.cast(), &truth_index, axis).unwrap();
    check::<T>(&truth, 0.0, &what("gather"), |_, y, threads| {
        gather(&dy, index, axis, y, threads).unwrap();
    });
    for reduce in Reduce::ALL {
        let (wide, dy_wide) = (x.cast(), dy.cast());
        let truth = reference::scatter_elements(&wide, &truth_index, n, reduce, axis).unwrap();
        let scatter = Scatter::new(&x, index, reduce, axis).unwrap();
        let tolerance = tolerance::<T>(4, largest(&truth));
        check::<T>(&truth, tolerance, &what("scatter"), |_, y, threads| {
            scatter.run(y, threads).unwrap();
        });
        for ties in TIES {
            let rule = (reduce, ties);
            let truth =
                reference::scatter_elements_backward(&wide, &truth_index, rule, axis, &dy_wide);
            let what = format!("{reduce:?} {ties:?} {}", what("backward"));
            check::<T>(&truth.unwrap(), tolerance, &what, |_, dx, threads| {
                scatter.backward(ties, &dy, dx, threads).unwrap();
            });
        }
    }
}

#[test]
fn an_index_for_every_element() {
    for ((len, n), axis) in SIZES.iter().flat_map(|&size| AXES.map(|axis| (size, axis))) {
        for k in [1, 3, 16, 40] {
            elements::<f32>(len, n, k, axis);
        }
        elements::<f64>(len, n, 5, axis);
        elements::<bf16>(len, n, 5, axis);
    }
    elements::<f32>(30, 9, 1100, Axis::Rows);
    gathers::<f32>(7, 5000, 1037);
    gathers::<bf16>(7, 10_000, 1037);
    gathers::<f64>(7, 5000, 1037);
    // Tables: more than a block of rows and an item, few columns and many, the last of them fewer.
    gathers::<f32>(7000, 50, 20);
    gathers::<f32>(2100, 130, 35);
    gathers::<f32>(41, 100, 1037);
    gathers::<f64>(41, 100, 1037);
    elements::<f32>(40, 200, 30, Axis::Cols);
}

/// Whoever is not named keeps its bits, −0 and all; sums begin with what is there.
#[test]
fn what_nobody_adds_to_stays() {
    let one = Threads::one();
    let at = positions(6000, 40, 9).into_iter().map(|s| s * 2).collect::<Vec<u32>>();
    let index = Index::new(&at, 80, &one).unwrap();
    for k in [1, 40] {
        let x = dense::<f32>(at.len(), k, 3);
        let args = Args::index_add(&x, Segments::from_index(&index), Axis::Rows).unwrap();
        for name in ["segment.rows.inorder", "segment.rows.buckets"] {
            let kernel = KERNELS.iter().find(|kernel| kernel.name == name).unwrap();
            if !kernel.accepts(&args) {
                continue;
            }
            for (isa, y) in on_every_machine(|isa, threads| {
                let mut y = Dense::<f32>::from_fn(80, k, |_, _| -0.0);
                kernel.run(isa, &args, &mut y, threads).unwrap();
                y
            }) {
                let mut odd = (1..80).step_by(2).flat_map(|s| y.row(s));
                let stays = odd.all(|y| y.to_bits() == (-0f32).to_bits());
                assert!(stays, "{name} {k} {}", isa.name());
            }
        }
    }
}

/// Strips have 64 columns where `n` rows of them stay in the cache, and 16 where those do; the last
/// one has fewer.
fn gathers<T: Stored>(len: usize, n: usize, k: usize) {
    let one = Threads::one();
    let (x, at) = (dense::<T>(n, k, 21), positions(len * k, n, 22));
    let truth_index = reference::IndexMatrix::new(len, k, at.clone()).unwrap();
    let truth = reference::gather(&x.cast(), &truth_index, Axis::Rows).unwrap();
    let index = Index::new(&at, n, &one).unwrap();
    let index = IndexMatrix::new(&index, len, k).unwrap();
    check::<T>(&truth, 0.0, &format!("gather {len} of {n}, {k} columns"), |_, y, threads| {
        gather(&x, index, Axis::Rows, y, threads).unwrap();
    });
}

/// Blocks of 16 rows and columns, and what is left of both, in rows that are further apart than
/// they are long: on the way in, out, and onto what is there.
#[test]
fn blocks_of_rows_with_padding() {
    blocks_with_padding::<f32>();
    blocks_with_padding::<bf16>();
}

fn blocks_with_padding<T: Stored>() {
    let (k, len, n, padding) = (37, 53, 41, 6);
    let one = Threads::one();
    let x = padded(&matrix::<T>(len, k, Axis::Cols, 31), padding);
    let at = positions(len, n, 32);
    let index = Index::new(&at, n, &one).unwrap();
    let groups = Groups::new(index.clone(), &one);
    let run = |truth: &Dense<f64>, what: &str, f: &dyn Fn(Isa, MatMut<'_, T>)| {
        let tolerance = tolerance::<T>(longest(&at, n), largest(truth));
        for isa in Isa::available() {
            let mut y = padded(&like::<T>(truth), padding);
            f(isa, MatMut::from(&mut y));
            let what = format!("{what} {}", isa.name());
            assert_close(&y, truth, tolerance, &what);
            let beyond = y.data().chunks(y.stride()).flat_map(|row| &row[y.n_cols()..]);
            assert!(beyond.into_iter().all(|v| v.to_f64() == PAD), "{what}: padding");
        }
    };
    for reduce in Reduce::ALL {
        let truth = reference::scatter(&x.cast(), &at, n, reduce, Axis::Cols).unwrap();
        for segments in [Segments::from_index(&index), groups.segments()] {
            let args = Args::new(&x, segments, reduce, Axis::Cols).unwrap();
            for kernel in KERNELS.iter().filter(|kernel| kernel.accepts(&args)) {
                run(&truth, &format!("{} {reduce:?}", kernel.name), &|isa, y| {
                    kernel.run(isa, &args, y, &one).unwrap();
                });
            }
        }
    }
    let y = matrix::<T>(n, k, Axis::Cols, 33);
    let truth = reference::index_add(&y.cast(), &at, &x.cast(), Axis::Cols).unwrap();
    let args = Args::index_add(&x, Segments::from_index(&index), Axis::Cols).unwrap();
    for kernel in KERNELS.iter().filter(|kernel| kernel.accepts(&args)) {
        run(&truth, &format!("{} onto", kernel.name), &|isa, mut out| {
            (0..k).for_each(|i| out.row_mut(i).copy_from_slice(y.row(i)));
            kernel.run(isa, &args, out, &one).unwrap();
        });
    }
    let x = padded(&matrix::<T>(n, k, Axis::Cols, 34), padding);
    let truth = reference::index_select(&x.cast(), &at, Axis::Cols).unwrap();
    let args = select::Args::new(&x, &index, Axis::Cols).unwrap();
    run(&truth, "select", &|isa, y| args.run(isa, y, &one).unwrap());
    let x = padded(&matrix::<T>(len, k, Axis::Cols, 35), padding);
    let by = reference::Segments::from_index(&at, n).unwrap();
    let truth = reference::segment_softmax(&x.cast(), &by, Axis::Cols).unwrap();
    let args = softmax::Args::new(&x, Segments::from_index(&index), Axis::Cols).unwrap();
    run(&truth, "softmax", &|isa, y| args.run(isa, y, &one).unwrap());
}

/// What stands between rows.
const PAD: f64 = -77.0;

/// The same numbers, rows further apart.
fn padded<T: Stored>(x: &Dense<T>, padding: usize) -> Dense<T> {
    let stride = x.n_cols() + padding;
    let mut data = vec![T::from_f64(PAD); x.n_rows() * stride];
    for (to, from) in data.chunks_exact_mut(stride).zip(x.rows()) {
        to[..from.len()].copy_from_slice(from);
    }
    Dense::new(Buffer::from(data), x.n_rows(), x.n_cols(), stride).unwrap()
}

#[test]
fn padding_is_neither_read_nor_written() {
    let (threads, isa) = (Threads::new(2).unwrap(), Isa::best());
    let at = [2u32, 0, 2, 1, 0];
    let index = Index::new(&at, 3, &threads).unwrap();
    let groups = Groups::new(index.clone(), &threads);
    for (axis, n_rows, n_cols, y_rows, y_cols) in
        [(Axis::Rows, 5, 19, 3, 19), (Axis::Cols, 19, 5, 19, 3)]
    {
        let stride = 23;
        let data: Vec<f32> = (0..n_rows * stride)
            .map(|e| if e % stride < n_cols { (e % 13) as f32 } else { f32::NAN })
            .collect();
        let x = Mat::new(&data, n_rows, n_cols, stride).unwrap();
        let plain = Dense::<f64>::from_fn(n_rows, n_cols, |i, j| f64::from(data[i * stride + j]));
        let compare = |out: &[f32], truth: &Dense<f64>, what: &str| {
            for (e, &value) in out.iter().enumerate() {
                let (i, j) = (e / stride, e % stride);
                let right = if j < truth.n_cols() { truth.at(i, j) } else { -77.0 };
                assert!((f64::from(value) - right).abs() < 1e-4, "{what} {axis:?} {i} {j}");
            }
        };
        let args = Args::new(x, groups.segments(), Reduce::Mean, axis).unwrap();
        for kernel in KERNELS.iter().filter(|kernel| kernel.accepts(&args)) {
            let mut out = vec![-77.0; y_rows * stride];
            let y = MatMut::new(&mut out, y_rows, y_cols, stride).unwrap();
            kernel.run(isa, &args, y, &threads).unwrap();
            let truth = reference::scatter(&plain, &at, 3, Reduce::Mean, axis).unwrap();
            compare(&out, &truth, kernel.name);
        }
        let mut out = vec![-77.0; n_rows * stride];
        let y = MatMut::new(&mut out, n_rows, n_cols, stride).unwrap();
        softmax::Args::new(x, groups.segments(), axis).unwrap().run(isa, y, &threads).unwrap();
        let by = reference::Segments::from_index(&at, 3).unwrap();
        compare(&out, &reference::segment_softmax(&plain, &by, axis).unwrap(), "softmax");
        let full: Vec<u32> = (0..n_rows * n_cols).map(|e| (e % 3) as u32).collect();
        let truth_index = reference::IndexMatrix::new(n_rows, n_cols, full.clone()).unwrap();
        let full = Index::new(&full, 3, &threads).unwrap();
        let full = IndexMatrix::new(&full, n_rows, n_cols).unwrap();
        let mut out = vec![-77.0; y_rows * stride];
        let y = MatMut::new(&mut out, y_rows, y_cols, stride).unwrap();
        Scatter::new(x, full, Reduce::Sum, axis).unwrap().run(y, &threads).unwrap();
        let truth = reference::scatter_elements(&plain, &truth_index, 3, Reduce::Sum, axis);
        compare(&out, &truth.unwrap(), "scatter");
    }
}

#[test]
fn positions_outside_are_named() {
    for threads in [Threads::one(), Threads::new(3).unwrap()] {
        let mut at = vec![1u32; 400_000];
        assert_eq!(Index::new(&at, 2, &threads).unwrap().len(), 400_000);
        (at[300_000], at[390_000]) = (2, 9);
        let message = Index::new(&at, 2, &threads).unwrap_err().to_string();
        assert_eq!(message, "segment: index 2 at position 300000 is outside 0..2");
        let mut at = vec![1i64; 400_000];
        let narrowed = Index::narrowed(&at, 2, &threads).unwrap();
        assert_eq!((narrowed.as_slice()[7], narrowed.len(), narrowed.bound()), (1, 400_000, 2));
        (at[300_000], at[390_000]) = (1 << 32, -1);
        let message = Index::narrowed(&at, 2, &threads).unwrap_err().to_string();
        assert_eq!(message, "segment: index 4294967296 at position 300000 is outside 0..2");
        at[5] = -3;
        let message = Index::narrowed(&at, 2, &threads).unwrap_err().to_string();
        assert_eq!(message, "segment: index -3 at position 5 is outside 0..2");
    }
    assert!(Index::new(&[], usize::MAX, &Threads::one()).is_err());
}

#[test]
fn sizes_are_checked() {
    let (threads, isa) = (Threads::one(), Isa::best());
    let index = Index::new(&[1, 0, 1], 2, &threads).unwrap();
    let segments = Segments::from_index(&index);
    let (x, axis) = (dense::<f32>(3, 4, 1), Axis::Rows);
    let wrong = dense::<f32>(4, 3, 1);
    assert!(Args::new(&wrong, segments, Reduce::Sum, axis).is_err());
    assert!(Args::new(&wrong, segments, Reduce::Sum, Axis::Cols).is_ok());
    let args = Args::new(&x, segments, Reduce::Sum, axis).unwrap();
    for kernel in KERNELS {
        for (n_rows, n_cols) in [(3, 4), (2, 3), (0, 0)] {
            let mut y = Dense::zeros(n_rows, n_cols);
            assert!(kernel.run(isa, &args, &mut y, &threads).is_err());
        }
        let fits = kernel.run(isa, &args, &mut Dense::zeros(2, 4), &threads).is_ok();
        assert_eq!(fits, kernel.accepts(&args));
    }
    assert!(select::Args::new(&x, &index, axis).is_err());
    assert!(softmax::Args::new(&wrong, segments, axis).is_err());
    let softmax = softmax::Args::new(&x, segments, axis).unwrap();
    assert!(softmax.run(isa, &mut Dense::zeros(2, 4), &threads).is_err());
    assert!(softmax::Backward::new(&x, segments, axis, &wrong).is_err());
    assert!(Backward::new(args, Ties::SplitEvenly, &x).is_err());
    assert!(IndexMatrix::new(&index, 2, 2).is_err());
    let index = IndexMatrix::new(&index, 1, 3).unwrap();
    assert!(Scatter::new(&x, index, Reduce::Sum, axis).is_err());
    assert!(gather(&x, index, axis, &mut Dense::zeros(1, 3), &threads).is_err());
}

#[test]
fn the_least_number_is_not_nothing() {
    let (one, least) = (Threads::one(), f32::NEG_INFINITY);
    let x = Dense::from_vec(vec![least, 1.0, least, -2.0], 1, 4).unwrap();
    let index = Index::new(&[0, 1, 0, 1], 3, &one).unwrap();
    let mut y = Dense::<f32>::zeros(1, 3);
    let matrix = IndexMatrix::new(&index, 1, 4).unwrap();
    let scatter = Scatter::new(&x, matrix, Reduce::Max, Axis::Cols).unwrap();
    scatter.run(&mut y, &one).unwrap();
    assert_eq!(y.row(0), [least, 1.0, 0.0]);
    let args = Args::new(&x, Segments::from_index(&index), Reduce::Max, Axis::Cols).unwrap();
    for kernel in KERNELS.iter().filter(|kernel| kernel.accepts(&args)) {
        kernel.run(Isa::best(), &args, &mut y, &one).unwrap();
        assert_eq!(y.row(0), [least, 1.0, 0.0], "{}", kernel.name);
    }
}
