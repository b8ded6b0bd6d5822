//! [`lacis_kernels::loss`] and [`lacis_kernels::optim`] against `lacis_core::reference`.

use lacis_core::reference::{self, Adam, AdamState, Decay, Sgd};
use lacis_core::{Dense, Threads, bf16};
use lacis_kernels::loss::{Grad, Loss, Outcome, predictions};
use lacis_kernels::optim::{self, AdamSlices};
use lacis_kernels::{Isa, MatMut, Real, Stored};

use crate::cases::{self, assert_close, bits, on_every_machine};
use crate::elementwise::{gaps_are_whole, numbers, rounding, strided, wide};

/// Rows in order, in no order and repeated, all and none.
fn lists(n: usize) -> Vec<Vec<u32>> {
    let some: Vec<u32> = (0..n as u32).filter(|i| i % 3 == 1).collect();
    let mixed = (0..n as u32).map(|i| (i * 5 + 2) % n as u32).filter(|i| i % 4 != 0).collect();
    vec![some, mixed, vec![n as u32 / 2; 3], (0..n as u32).collect(), Vec::new()]
}

fn logits<T: Stored>(n: usize, k: usize) -> Dense<T> {
    let noise = cases::dense::<f64>(n, k, 5);
    Dense::from_fn(n, k, |i, c| 4.0 * noise.at(i, c) + if i % 9 == 0 { 500.0 } else { 0.0 })
}

/// Both forms of the gradient, the loss and the count of right answers.
fn check<T: Stored>(loss: &Loss<'_>, z: &Dense<T>, rows: &[u32], right: (&reference::Loss, usize)) {
    let (n, k) = (z.n_rows(), z.n_cols());
    let (truth, correct) = right;
    let tolerance = 8.0 * rounding::<T>();
    for (isa, (outcomes, _, all, _, chosen)) in on_every_machine(|isa, threads| {
        let empty = |n| strided(&Dense::<T>::from_fn(n, k, |_, _| f64::NAN));
        let (mut all, mut chosen) = (empty(n), empty(rows.len()));
        let run = |grad| {
            let Outcome { loss, correct } = loss.run(isa, &strided(z), grad, threads).unwrap();
            (loss.to_bits(), correct)
        };
        let outcomes = [
            run(Grad::All(MatMut::from(&mut all))),
            run(Grad::Chosen(MatMut::from(&mut chosen))),
            run(Grad::None),
        ];
        assert!(gaps_are_whole(&all) && gaps_are_whole(&chosen));
        let mut turned = strided(z);
        let found = loss.run_in_place(isa, MatMut::from(&mut turned), threads).unwrap();
        assert_eq!((found.loss.to_bits(), found.correct), outcomes[0]);
        assert_eq!(bits(&turned), bits(&all), "in place");
        (outcomes, bits(&all), all, bits(&chosen), chosen)
    }) {
        let what = format!("{n} {k} {} rows {}", rows.len(), isa.name());
        for (value, found) in outcomes {
            let value = f64::from_bits(value);
            let close = (value - truth.value).abs() <= 4.0 * rounding::<T::Sum>() * 500.0;
            assert!(close || rows.is_empty() && value.is_nan(), "{what}: {value} {}", truth.value);
            assert_eq!(found, correct, "{what}");
        }
        assert_close(&all, &truth.grad, tolerance, &what);
        let times = |row: u32| rows.iter().filter(|i| **i == row).count() as f64;
        let listed = Dense::<f64>::from_fn(rows.len(), k, |at, c| {
            truth.grad.at(rows[at] as usize, c) / times(rows[at])
        });
        assert_close(&chosen, &listed, tolerance, &what);
    }
}

fn check_classes<T: Stored>(n: usize, k: usize) {
    let z = logits::<T>(n, k);
    let labels: Vec<i32> = (0..n).map(|i| (i * 7 % k) as i32).collect();
    let first_greatest = |i: usize| {
        let row: Vec<f64> = (0..k).map(|c| z.at(i, c)).collect();
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        row.iter().position(|v| *v == max)
    };
    for rows in lists(n) {
        let mut labels = labels.clone();
        // Who is not listed needs no label.
        (0..n).filter(|i| !rows.contains(&(*i as u32))).for_each(|i| labels[i] = -1);
        let truth = reference::cross_entropy(&z.cast(), &labels, &rows).unwrap();
        let right = |i: &&u32| first_greatest(**i as usize) == Some(labels[**i as usize] as usize);
        let loss = Loss::classes(&labels, k, &rows).unwrap();
        check(&loss, &z, &rows, (&truth, rows.iter().filter(right).count()));
    }
}

fn check_binary<T: Stored>(n: usize, k: usize) {
    let z = logits::<T>(n, k);
    let targets = Dense::<f32>::from_fn(n, k, |i, c| [0.0, 1.0, 0.25][(i + c) % 3]);
    for rows in lists(n) {
        let truth = reference::binary_cross_entropy(&z.cast(), &targets.cast(), &rows).unwrap();
        let right =
            |i: usize| (0..k).filter(|&c| (z.at(i, c) > 0.0) == (targets.at(i, c) > 0.5)).count();
        let loss = Loss::binary(&targets, &rows).unwrap();
        let correct = rows.iter().map(|i| right(*i as usize)).sum();
        check(&loss, &z, &rows, (&truth, correct));
    }
}

#[test]
fn losses_and_gradients() {
    for (n, k) in [(1, 1), (5, 2), (30, 7), (41, 41), (12, 130), (700, 120)] {
        check_classes::<f32>(n, k);
        check_binary::<f32>(n, k);
    }
    check_classes::<f64>(20, 17);
    check_classes::<bf16>(20, 17);
    check_binary::<f64>(20, 17);
    check_binary::<bf16>(20, 17);
}

#[test]
fn predictions_are_the_first_greatest() {
    let x = Dense::<f32>::from_fn(1500, 50, |i, c| [(c as f64).sin(), 1.0, 0.0][(i + c) % 3]);
    for (_, found) in on_every_machine(|isa, threads| {
        let mut found = vec![9; 1500];
        predictions(isa, &x, &mut found, threads).unwrap();
        found
    }) {
        for (i, found) in found.iter().enumerate() {
            let row = x.row(i);
            let first = (0..50).find(|c| row.iter().all(|v| *v <= row[*c]));
            assert_eq!(Some(*found as usize), first);
        }
    }
    let nan = Dense::<f32>::from_fn(1, 3, |_, c| [2.0, f64::NAN, 1.0][c]);
    let mut found = [9];
    predictions(Isa::best(), &nan, &mut found, &Threads::one()).unwrap();
    assert_eq!(found, [1]);
    assert!(predictions(Isa::best(), &nan, &mut [], &Threads::one()).is_err());
}

#[test]
fn what_does_not_fit_is_an_error() {
    assert!(Loss::classes(&[0, 3], 3, &[1]).is_err());
    assert!(Loss::classes(&[0, -1], 3, &[1]).is_err());
    assert!(Loss::classes(&[0, -1], 3, &[2]).is_err());
    assert!(Loss::classes(&[0], 0, &[0]).is_err());
    let z = logits::<f32>(4, 3);
    assert!(Loss::binary(&z, &[4]).is_err());
    let loss = Loss::classes(&[0, 1, 2, 0], 3, &[1, 2]).unwrap();
    let (isa, threads) = (Isa::best(), Threads::one());
    assert!(loss.run(isa, &logits::<f32>(4, 2), Grad::None, &threads).is_err());
    let mut wrong = Dense::<f32>::zeros(2, 3);
    assert!(loss.run(isa, &z, Grad::All(MatMut::from(&mut wrong)), &threads).is_err());
    assert!(loss.run_in_place(isa, MatMut::from(&mut wrong), &threads).is_err());
    let mut wrong = Dense::<f32>::zeros(4, 3);
    assert!(loss.run(isa, &z, Grad::Chosen(MatMut::from(&mut wrong)), &threads).is_err());
}

fn check_adam<F: Real>(adam: Adam, n: usize) {
    let start = numbers::<F>(n, 1);
    let grads: Vec<Vec<F>> = (0..3).map(|step| numbers(n, 10 + step)).collect();
    let (mut truth, mut state) = (wide(&start), AdamState::new(n));
    for grad in &grads {
        adam.step(&mut truth, &wide(grad), &mut state).unwrap();
    }
    for (_, found) in on_every_machine(|isa, threads| {
        let (mut w, mut first, mut second) = (start.clone(), vec![F::ZERO; n], vec![F::ZERO; n]);
        for (grad, t) in grads.iter().zip(1..) {
            let slices =
                AdamSlices { weights: &mut w, grad, first: &mut first, second: &mut second };
            optim::adam(isa, &adam, t, slices, threads).unwrap();
        }
        [w, first, second]
    }) {
        let right = [&truth, &state.first, &state.second];
        for (found, right) in found.iter().flatten().zip(right.into_iter().flatten()) {
            let allowed = 32.0 * F::EPSILON.to_f64();
            assert!((found.to_f64() - right).abs() <= allowed, "{found:?} {right}");
        }
    }
}

#[test]
fn adam_steps_are_the_references() {
    let plain = Adam::new(0.1);
    for n in [0, 1, 37, 70_000] {
        check_adam::<f32>(plain, n);
        check_adam::<f32>(Adam { weight_decay: 0.3, ..plain }, n);
        check_adam::<f32>(Adam { weight_decay: 0.3, ..Adam::decoupled(0.1) }, n);
    }
    check_adam::<f64>(Adam { decay: Decay::Coupled, ..Adam::decoupled(0.05) }, 100);
    check_adam::<f64>(Adam { betas: [0.5, 0.7], eps: 1e-3, ..plain }, 100);
}

#[test]
fn sgd_steps_are_the_references() {
    for (momentum, n) in [(0.0, 50), (0.9, 50), (0.5, 70_000)] {
        let sgd = Sgd { rate: 0.1, momentum, weight_decay: 0.02 };
        let (start, grad) = (numbers::<f32>(n, 1), numbers::<f32>(n, 2));
        let (mut truth, mut u) = (wide(&start), vec![0.0; n]);
        (0..3).for_each(|_| sgd.step(&mut truth, &wide(&grad), &mut u).unwrap());
        for (_, w) in on_every_machine(|isa, threads| {
            let (mut w, mut u) = (start.clone(), vec![0.0; n]);
            for _ in 0..3 {
                let velocity = (momentum != 0.0).then_some(&mut u[..]);
                optim::sgd(isa, &sgd, (&mut w, &grad), velocity, threads).unwrap();
            }
            w
        }) {
            for (found, right) in w.iter().zip(&truth) {
                assert!((f64::from(*found) - right).abs() < 1e-6, "{found} {right}");
            }
        }
    }
}

#[test]
fn slices_must_be_of_one_length() {
    let (isa, threads) = (Isa::best(), Threads::one());
    let adam = |n: usize, t| {
        let [mut w, mut first, mut second] = [vec![0f32; 3], vec![0.0; 3], vec![0.0; n]];
        let grad = [0.0; 3];
        let (first, second) = (&mut first[..], &mut second[..]);
        let slices = AdamSlices { weights: &mut w, grad: &grad, first, second };
        optim::adam(isa, &Adam::new(0.1), t, slices, &threads)
    };
    assert!(adam(2, 1).is_err() && adam(3, 0).is_err() && adam(3, 1).is_ok());
    let sgd = Sgd { rate: 0.1, momentum: 0.5, weight_decay: 0.0 };
    let mut w = [0f32; 2];
    assert!(optim::sgd(isa, &sgd, (&mut w, &[0.0; 2]), None, &threads).is_err());
    assert!(optim::sgd(isa, &sgd, (&mut w, &[0.0; 2]), Some(&mut [0.0]), &threads).is_err());
    assert!(optim::sgd(isa, &sgd, (&mut w, &[0.0; 1]), Some(&mut [0.0; 2]), &threads).is_err());
}
