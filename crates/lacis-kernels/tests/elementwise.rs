//! [`lacis_kernels::elementwise`] and [`lacis_kernels::dropout`] against `lacis_core::reference`.

use lacis_core::reference::{self, Activation};
use lacis_core::{Dense, Element, Rng, Threads, bf16};
use lacis_kernels::dropout::Dropout;
use lacis_kernels::elementwise::{Backward, Forward, Saved, column_sums};
use lacis_kernels::{Isa, Mat, Real, Stored};

use crate::cases::{self, assert_close, bits, on_every_machine};

pub const ACTIVATIONS: [Activation; 6] = [
    Activation::Identity,
    Activation::Relu,
    Activation::LeakyRelu(0.2),
    Activation::Elu(1.5),
    Activation::Sigmoid,
    Activation::Tanh,
];

/// Nothing, one element, narrow and wide rows, several strips, several chunks.
pub const SHAPES: [(usize, usize); 11] = [
    (0, 3),
    (3, 0),
    (1, 1),
    (5, 3),
    (2100, 1),
    (67, 7),
    (1700, 41),
    (9, 130),
    (70, 256),
    (3, 1030),
    (66, 1024),
];

/// What one rounding of a stored number costs, and one of a sum; functions cost a little more.
pub fn rounding<T: Stored>() -> f64 {
    let stored = match T::DTYPE {
        lacis_core::DType::F64 => f64::EPSILON,
        lacis_core::DType::F32 => f64::from(f32::EPSILON),
        lacis_core::DType::Bf16 => 1.0 / 256.0,
    };
    stored + 16.0 * T::Sum::EPSILON.to_f64()
}

/// Rows further apart than they are long, with numbers between them that nobody may change.
pub fn strided<T: Element>(x: &Dense<T>) -> Dense<T> {
    let (n, k) = (x.n_rows(), x.n_cols());
    let wide = Dense::<T>::from_fn(n, k + 3, |i, j| if j < k { x.at(i, j) } else { 77.0 });
    Dense::new(wide.data().clone(), n, k, k + 3).unwrap()
}

pub fn gaps_are_whole<T: Element>(x: &Dense<T>) -> bool {
    let gaps = x.data().chunks(x.stride()).map(|row| &row[x.n_cols()..]);
    gaps.flatten().all(|v| v.to_f64() == 77.0)
}

pub fn numbers<F: Real>(n: usize, seed: u64) -> Vec<F> {
    cases::dense::<F>(1, n, seed).row(0).to_vec()
}

pub fn wide<F: Real>(numbers: &[F]) -> Vec<f64> {
    numbers.iter().map(|x| x.to_f64()).collect()
}

fn dropout<'a>(rows: Option<&'a [u32]>) -> Dropout<'a> {
    let dropout = Dropout::new(Rng::new(3, "test"), 0.3).unwrap();
    rows.map_or(dropout, |rows| dropout.at_rows(rows))
}

fn mask(dropout: &Dropout<'_>, rows: &[u32], k: usize) -> Dense<f64> {
    Dense::from_fn(
        rows.len(),
        k,
        |i, c| {
            if dropout.keeps(rows[i], c) { dropout.scale() } else { 0.0 }
        },
    )
}

/// `d·f(α·l·a·(x − μ) + β·z + b)` and back, with everything or with nothing but `f`.
fn check<T: Stored>((n, k): (usize, usize), activation: Activation, full: bool, gaps: bool) {
    let with_gaps = |x: Dense<T>| if gaps { strided(&x) } else { x };
    let (x, z) = (with_gaps(cases::dense(n, k, 1)), with_gaps(cases::dense(n, k, 2)));
    let (left, factors) = (numbers::<T::Sum>(n, 3), numbers::<T::Sum>(k, 4));
    let (centres, bias) = (numbers::<T::Sum>(k, 5), numbers::<T::Sum>(k, 6));
    let rows: Vec<u32> = (0..n as u32).map(|i| i * 7 % 1000).collect();
    let drop = dropout(Some(&rows));
    let pass = Forward::new(&x).activated(activation);
    let pass = if !full {
        pass
    } else {
        let pass = pass.scaled(1.5).row_scaled(&left).unwrap().column_scaled(&factors).unwrap();
        let pass = pass.centred(&centres).unwrap().plus(-0.5, &z).unwrap();
        pass.biased(&bias).unwrap().dropped(drop).unwrap()
    };
    let argument = Dense::<f64>::from_fn(n, k, |i, c| {
        let linear = 1.5 * left[i].to_f64() * factors[c].to_f64();
        let centred = x.at(i, c) - centres[c].to_f64();
        if full { linear * centred - 0.5 * z.at(i, c) + bias[c].to_f64() } else { x.at(i, c) }
    });
    let mask = if full { mask(&drop, &rows, k) } else { Dense::from_fn(n, k, |_, _| 1.0) };
    let truth = reference::activate(&argument, activation);
    let truth = reference::dropout(&truth, &mask).unwrap();
    let outputs = on_every_machine(|isa, threads| {
        let mut y = with_gaps(Dense::from_fn(n, k, |_, _| f64::NAN));
        pass.run(isa, &mut y, threads).unwrap();
        assert!(!gaps || gaps_are_whole(&y));
        (bits(&y), y)
    });
    let what = format!("{activation:?} {n} {k} {full} {gaps} {:?}", T::DTYPE);
    for (isa, (_, y)) in &outputs {
        assert_close(y, &truth, 8.0 * rounding::<T>(), &format!("{what} {}", isa.name()));
        let mut in_place = x.clone();
        pass.of_itself().run(*isa, &mut in_place, &Threads::one()).unwrap();
        assert_eq!(bits(&in_place), bits(y), "{what}: in place");
    }
    let (_, (_, y)) = &outputs[0];
    let input = Dense::<T>::from_fn(n, k, |i, c| argument.at(i, c));
    back(&input, y, activation, full.then_some((drop, &mask)), &what);
}

/// The gradient from the input and from the output, and its columns' sums.
fn back<T: Stored>(
    input: &Dense<T>,
    output: &Dense<T>,
    activation: Activation,
    drop: Option<(Dropout<'_>, &Dense<f64>)>,
    what: &str,
) {
    let (n, k) = (input.n_rows(), input.n_cols());
    let dy = cases::dense::<T>(n, k, 8);
    let g = dy.cast::<f64>();
    let masked = drop.map_or(g.clone(), |(_, mask)| reference::dropout(&g, mask).unwrap());
    let truth = reference::activate_backward(&input.cast(), activation, &masked).unwrap();
    let sums = reference::bias_backward(&truth);
    let zeros = vec![T::Sum::ZERO; k];
    for saved in [Saved::Input(Mat::from(input)), Saved::Output(Mat::from(output))] {
        let pass = Backward::new(&dy).activated(activation, saved).unwrap();
        let pass = drop.map_or(pass, |(drop, _)| pass.dropped(drop).unwrap());
        // An input that was rounded to be stored may stand on the other side of the kink.
        let rounded = T::DTYPE == lacis_core::DType::Bf16 || drop.is_some();
        for (isa, (_, found, totals)) in on_every_machine(|isa, threads| {
            let mut found = Dense::<T>::from_fn(n, k, |_, _| f64::NAN);
            let mut totals = zeros.clone();
            pass.biased(&zeros).unwrap().run(isa, &mut found, Some(&mut totals), threads).unwrap();
            let mut alone = Dense::<T>::from_fn(n, k, |i, c| dy.at(i, c));
            pass.of_itself().run(isa, &mut alone, None, threads).unwrap();
            assert!(bits(&alone) == bits(&found), "{what}: in place, without sums");
            (bits(&found), found, totals)
        }) {
            let what = format!("{what} backward {}", isa.name());
            let near_kink = |i: usize, c: usize| rounded && input.at(i, c).abs() < 0.01;
            let found = Dense::<f64>::from_fn(n, k, |i, c| {
                if near_kink(i, c) { truth.at(i, c) } else { found.at(i, c) }
            });
            assert_close(&found, &truth, 16.0 * rounding::<T>(), &what);
            if !rounded {
                let allowed = (n as f64 + 4.0) * 16.0 * rounding::<T>();
                for (total, right) in totals.iter().zip(&sums) {
                    assert!((total.to_f64() - right).abs() <= allowed, "{what}: {total:?} {right}");
                }
            }
        }
    }
}

#[test]
fn every_function_forward_and_back() {
    for activation in ACTIVATIONS {
        for shape in SHAPES {
            check::<f32>(shape, activation, shape.0 % 2 == 1, false);
        }
        check::<f64>((67, 41), activation, true, false);
        check::<bf16>((67, 41), activation, true, true);
        check::<bf16>((67, 41), activation, false, false);
        check::<f32>((21, 19), activation, true, true);
        check::<f32>((2, 2050), activation, true, true);
    }
}

#[test]
fn every_width() {
    for k in 1..130 {
        check::<f32>((5, k), Activation::Relu, true, k % 2 == 0);
    }
}

#[test]
fn bias_gradients_are_column_sums() {
    for (n, k) in SHAPES {
        let dy = cases::dense::<f32>(n, k, 4);
        for dy in [strided(&dy), dy] {
            let truth = reference::bias_backward(&dy.cast());
            for (_, found) in on_every_machine(|isa, threads| {
                let mut found = vec![f32::NAN; k];
                column_sums(isa, &dy, &mut found, threads).unwrap();
                found
            }) {
                for (found, right) in found.iter().zip(&truth) {
                    // 64 strips at most are added in f32.
                    let allowed = 80.0 * f64::from(f32::EPSILON) * (n as f64);
                    assert!((f64::from(*found) - right).abs() <= allowed, "{n} {k}");
                }
            }
        }
    }
}

#[test]
fn masks_are_philox_by_row_and_column() {
    let rng = Rng::new(11, "mask");
    let drop = Dropout::new(rng, 0.5).unwrap();
    for (row, column) in [(0, 0), (5, 1), (7, 6), (u32::MAX, 15), (3, 2049)] {
        let block = rng.block_at(u64::from(row), column as u32 / 8);
        let bytes = block.map(u32::to_le_bytes).concat();
        let number = u16::from_le_bytes([bytes[column % 8 * 2], bytes[column % 8 * 2 + 1]]);
        assert_eq!(drop.keeps(row, column), number < 1 << 15);
    }
    let kept = (0..40_000).filter(|i| drop.keeps(i / 50, *i as usize % 50)).count();
    assert!(kept.abs_diff(20_000) < 500, "{kept} of 40000");
}

#[test]
fn sub_graphs_meet_the_same_mask() {
    let x = cases::dense::<f32>(300, 41, 1);
    let all = dropout(None);
    let (threads, isa) = (Threads::one(), Isa::best());
    let mut y = Dense::zeros(300, 41);
    Forward::new(&x).dropped(all).unwrap().run(isa, &mut y, &threads).unwrap();
    let rows: Vec<u32> = (0..300).filter(|i| i % 7 == 3).rev().collect();
    let sub = Dense::<f32>::from_fn(rows.len(), 41, |i, c| x.at(rows[i] as usize, c));
    let mut part = Dense::zeros(rows.len(), 41);
    let pass = Forward::new(&sub).dropped(all.at_rows(&rows)).unwrap();
    pass.run(isa, &mut part, &threads).unwrap();
    for (i, &row) in rows.iter().enumerate() {
        assert_eq!(part.row(i), y.row(row as usize));
    }
}

#[test]
fn dropping_nothing_and_everything() {
    let x = cases::dense::<f32>(10, 9, 1);
    let run = |p: f64| {
        let drop = Dropout::new(Rng::new(1, "p"), p).unwrap();
        let mut y = Dense::from_fn(10, 9, |_, _| f64::NAN);
        let pass = Forward::new(&x).dropped(drop).unwrap();
        pass.run(Isa::best(), &mut y, &Threads::one()).unwrap();
        y
    };
    assert_eq!(run(0.0), x);
    assert!(run(1.0).rows().flatten().all(|y| *y == 0.0));
    assert!(Dropout::new(Rng::new(1, "p"), 1.5).is_err());
    assert!(Dropout::new(Rng::new(1, "p"), f64::NAN).is_err());
}

#[test]
fn nan_stays() {
    let x = Dense::<f32>::from_fn(3, 40, |i, _| [f64::NAN, 1.0, f64::NAN][i]);
    for activation in ACTIVATIONS {
        for isa in Isa::available() {
            let mut y = Dense::zeros(3, 40);
            let pass = Forward::new(&x).activated(activation).dropped(dropout(None)).unwrap();
            pass.run(isa, &mut y, &Threads::one()).unwrap();
            assert!(y.row(0).iter().chain(y.row(2)).all(|y| y.is_nan()), "{activation:?}");
            assert!(y.row(1).iter().all(|y| !y.is_nan()), "{activation:?}");
        }
    }
}

#[test]
fn sizes_are_checked() {
    let (x, other) = (cases::dense::<f32>(4, 3, 1), cases::dense::<f32>(3, 4, 1));
    let pass = Forward::new(&x);
    assert!(pass.row_scaled(&[1.0; 3]).is_err() && pass.column_scaled(&[1.0; 4]).is_err());
    assert!(pass.centred(&[1.0]).is_err() && pass.biased(&[1.0]).is_err());
    assert!(pass.plus(1.0, &other).is_err());
    assert!(pass.dropped(dropout(Some(&[1, 2]))).is_err());
    let (isa, threads) = (Isa::best(), Threads::one());
    assert!(pass.run(isa, &mut Dense::zeros(3, 3), &threads).is_err());
    assert!(pass.run(isa, &mut Dense::zeros(4, 4), &threads).is_err());
    let pass = Backward::new(&x);
    assert!(pass.activated(Activation::Relu, Saved::Nothing).is_err());
    assert!(pass.activated(Activation::Elu(-1.0), Saved::Output(Mat::from(&x))).is_err());
    assert!(pass.activated(Activation::Relu, Saved::Input(Mat::from(&other))).is_err());
    assert!(pass.biased(&[0.0]).is_err());
    assert!(pass.run(isa, &mut Dense::zeros(4, 4), None, &threads).is_err());
    assert!(pass.run(isa, &mut Dense::zeros(4, 3), Some(&mut [0.0]), &threads).is_err());
    assert!(column_sums(isa, &x, &mut [0.0; 4], &threads).is_err());
}
