//! [`lacis_kernels::norm`] and [`lacis_kernels::softmax`] against `lacis_core::reference`.

use lacis_core::reference::{self, Eps, Moments, NormGrads};
use lacis_core::{Dense, Element, Threads, bf16};
use lacis_kernels::elementwise::Forward;
use lacis_kernels::norm::{self, Grads, Norm, Scaling};
use lacis_kernels::softmax::{Form, softmax, softmax_backward};
use lacis_kernels::{Isa, MatMut, Real, Stored};

use crate::cases::{self, assert_close, bits, on_every_machine};
use crate::elementwise::{SHAPES, gaps_are_whole, numbers, rounding, strided, wide};

const EPS: f64 = 1e-5;

/// How the moments are found and used.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Batch,
    Fixed,
    Layer,
    Graph(Eps),
}

const KINDS: [Kind; 5] =
    [Kind::Batch, Kind::Fixed, Kind::Layer, Kind::Graph(Eps::Beside), Kind::Graph(Eps::Under)];

/// A problem: rows with a mean and a size of their own in each column.
struct Problem<T: Stored> {
    x: Dense<T>,
    dy: Dense<T>,
    gamma: Vec<T::Sum>,
    beta: Vec<T::Sum>,
}

impl<T: Stored> Problem<T> {
    fn new((n, k): (usize, usize), offset: f64) -> Self {
        let noise = cases::dense::<f64>(n, k, 1);
        let x = Dense::from_fn(n, k, |i, c| noise.at(i, c) * (1.0 + (c % 3) as f64) + offset);
        let (gamma, beta) = (numbers(k, 3), numbers(k, 4));
        Problem { x, dy: cases::dense(n, k, 2), gamma, beta }
    }

    fn norm(&self) -> Norm<'_, T::Sum> {
        Norm { gamma: &self.gamma, beta: &self.beta, eps: EPS }
    }

    fn fixed(&self) -> Moments {
        let k = self.x.n_cols();
        Moments { mean: wide(&numbers::<f32>(k, 8)), var: (0..k).map(|c| 0.5 + c as f64).collect() }
    }

    fn scaling(&self, kind: Kind, isa: Isa, threads: &Threads) -> Scaling {
        let moments = norm::moments(isa, &self.x, threads);
        match kind {
            Kind::Batch => Scaling::batch(&moments, self.x.n_rows(), EPS).unwrap(),
            Kind::Graph(place) => Scaling::graph(&moments, EPS, place),
            _ => Scaling::fixed(&self.fixed(), EPS),
        }
    }

    fn forward(&self, kind: Kind, isa: Isa, threads: &Threads, y: &mut Dense<T>) {
        if kind == Kind::Layer {
            return norm::layer(isa, &self.norm(), &self.x, y, threads).unwrap();
        }
        let columns = self.scaling(kind, isa, threads).columns(&self.norm()).unwrap();
        columns.forward(Forward::new(&self.x)).unwrap().run(isa, y, threads).unwrap();
    }

    fn backward(
        &self,
        kind: Kind,
        isa: Isa,
        threads: &Threads,
        dx: &mut Dense<T>,
    ) -> [Vec<T::Sum>; 2] {
        let k = self.x.n_cols();
        let [mut dgamma, mut dbeta] = [vec![T::Sum::ZERO; k], vec![T::Sum::ZERO; k]];
        let inputs = (&self.x, &self.dy);
        let outputs = Grads { x: MatMut::from(dx), gamma: &mut dgamma, beta: &mut dbeta };
        if kind == Kind::Layer {
            norm::layer_backward(isa, &self.norm(), inputs, outputs, threads).unwrap();
        } else {
            let scaling = self.scaling(kind, isa, threads);
            norm::backward(isa, (&scaling, &self.norm()), inputs, outputs, threads).unwrap();
        }
        [dgamma, dbeta]
    }

    fn truth(&self, kind: Kind) -> (Dense<f64>, NormGrads) {
        let (gamma, beta) = (wide(&self.gamma), wide(&self.beta));
        let norm = reference::Norm { gamma: &gamma, beta: &beta, eps: EPS };
        let (x, dy) = (self.x.cast(), self.dy.cast());
        let (y, grads) = match kind {
            Kind::Batch => (norm.batch(&x), norm.batch_backward(&x, &dy)),
            Kind::Layer => (norm.layer(&x), norm.layer_backward(&x, &dy)),
            Kind::Graph(eps) => (norm.graph(&x, eps), norm.graph_backward(&x, eps, &dy)),
            Kind::Fixed => {
                let moments = self.fixed();
                let grads = norm.with_moments_backward(&x, &moments, &dy);
                (norm.with_moments(&x, &moments), grads)
            }
        };
        (y.unwrap(), grads.unwrap())
    }
}

fn check<T: Stored>(shape: (usize, usize), kind: Kind, gaps: bool) {
    let (n, k) = shape;
    if n < 2 || kind != Kind::Batch && k == 0 {
        return;
    }
    let mut problem = Problem::<T>::new(shape, 0.0);
    if gaps {
        problem.x = strided(&problem.x);
    }
    let (y, grads) = problem.truth(kind);
    let what = format!("{kind:?} {n} {k} {gaps} {:?}", T::DTYPE);
    // Two rows, or two columns, may be so close that dividing by their deviation enlarges errors.
    let enlarged = if k < 8 || n < 8 { 300.0 } else { 4.0 };
    for (isa, (_, found, _, dx, [dgamma, dbeta])) in on_every_machine(|isa, threads| {
        let empty = Dense::<T>::from_fn(n, k, |_, _| f64::NAN);
        let empty = if gaps { strided(&empty) } else { empty };
        let (mut y, mut dx) = (empty.clone(), empty);
        problem.forward(kind, isa, threads, &mut y);
        let columns = problem.backward(kind, isa, threads, &mut dx);
        assert!(!gaps || gaps_are_whole(&y) && gaps_are_whole(&dx));
        (bits(&y), y, bits(&dx), dx, columns)
    }) {
        let what = format!("{what} {}", isa.name());
        let tolerance = enlarged * 4.0 * rounding::<T>();
        assert_close(&found, &y, tolerance, &what);
        assert_close(&dx, &grads.x, tolerance, &format!("{what} dx"));
        let sums = [(dgamma, &grads.gamma), (dbeta, &grads.beta)];
        for (found, right) in sums.into_iter().flat_map(|(f, r)| f.into_iter().zip(r)) {
            let allowed = enlarged * 64.0 * T::Sum::EPSILON.to_f64() * (n as f64 + 8.0);
            assert!((found.to_f64() - right).abs() <= allowed, "{what}: {found:?} {right}");
        }
    }
}

#[test]
fn every_norm_forward_and_back() {
    for kind in KINDS {
        for shape in SHAPES {
            check::<f32>(shape, kind, false);
        }
        check::<f64>((67, 41), kind, false);
        check::<bf16>((67, 41), kind, true);
        check::<f32>((30, 20), kind, true);
    }
}

#[test]
fn every_width() {
    for k in 1..130 {
        check::<f32>((9, k), Kind::Layer, k % 2 == 0);
        check::<f32>((9, k), Kind::Batch, k % 2 == 0);
    }
}

#[test]
fn a_great_mean_does_not_hide_the_variance() {
    let problem = Problem::<f32>::new((3000, 41), 1000.0);
    let truth = Moments::of_columns(&problem.x.cast());
    for (_, found) in on_every_machine(|isa, threads| norm::moments(isa, &problem.x, threads)) {
        for c in 0..41 {
            assert!((found.mean[c] - truth.mean[c]).abs() < 1e-4);
            assert!((found.var[c] / truth.var[c] - 1.0).abs() < 1e-4, "{c}");
        }
    }
    let (y, _) = problem.truth(Kind::Batch);
    let mut found = Dense::zeros(3000, 41);
    problem.forward(Kind::Batch, Isa::best(), &Threads::one(), &mut found);
    // Half a unit of the mean in the last place, seen through the deviation.
    assert_close(&found, &y, 1e-3, "batch");
}

#[test]
fn running_moments_are_the_references() {
    let x = cases::dense::<f32>(50, 7, 1);
    let (mut found, mut right) = (Moments::standard(7), Moments::standard(7));
    for _ in 0..3 {
        let batch = norm::moments(Isa::best(), &x, &Threads::one());
        norm::update_running(&mut found, &batch, 50, 0.1).unwrap();
        right.update(&x.cast(), 0.1).unwrap();
    }
    let all = found.mean.iter().chain(&found.var).zip(right.mean.iter().chain(&right.var));
    all.for_each(|(found, right)| assert!((found - right).abs() < 1e-6));
    let batch = Moments::standard(6);
    assert!(norm::update_running(&mut found, &batch, 50, 0.1).is_err());
    assert!(norm::update_running(&mut found, &right, 1, 0.1).is_err());
}

#[test]
fn softmax_forward_and_back() {
    for (n, k) in SHAPES.into_iter().chain((1..70).map(|k| (3, k))) {
        check_softmax::<f32>(n, k);
    }
    check_softmax::<f64>(30, 41);
    check_softmax::<bf16>(30, 41);
}

fn check_softmax<T: Stored>(n: usize, k: usize) {
    let x =
        Dense::<T>::from_fn(n, k, |i, c| [0.5, -40.0, 300.0][(i + c) % 3] * (c as f64 + 1.0).sin());
    let dy = cases::dense::<T>(n, k, 3);
    for form in [Form::Plain, Form::Log] {
        let wide = x.cast();
        let log = form == Form::Log;
        let y = if log { reference::log_softmax(&wide) } else { reference::softmax(&wide) };
        let stored = y.cast::<T>();
        let (y64, dy64) = (stored.cast(), dy.cast());
        let dx = match form {
            Form::Plain => reference::softmax_backward(&y64, &dy64).unwrap(),
            Form::Log => reference::log_softmax_backward(&y64, &dy64).unwrap(),
        };
        for (isa, (_, found, _, back)) in on_every_machine(|isa, threads| {
            let empty = Dense::<T>::from_fn(n, k, |_, _| f64::NAN);
            let (mut found, mut back) = (empty.clone(), empty);
            softmax(isa, form, &strided(&x), &mut found, threads).unwrap();
            softmax_backward(isa, form, (&stored, &dy), &mut back, threads).unwrap();
            (bits(&found), found, bits(&back), back)
        }) {
            let what = format!("{form:?} {n} {k} {}", isa.name());
            // A logarithm is as large as the greatest difference.
            let size = if log { 700.0 } else { 1.0 };
            // The reference takes the exponential of such a logarithm.
            let tolerance = size * rounding::<T>() + 700.0 * f64::EPSILON;
            assert_close(&found, &y, tolerance, &what);
            let sum = (k as f64 + 1.0) * 2.0;
            assert_close(&back, &dx, sum * rounding::<T>(), &what);
        }
    }
}

#[test]
fn nan_and_infinity_in_a_row_stay_there() {
    let x = Dense::<f32>::from_fn(3, 20, |i, c| if (i, c) == (1, 17) { f64::NAN } else { 1.0 });
    let norm = Norm { gamma: &[1.0; 20], beta: &[0.0; 20], eps: EPS };
    for isa in Isa::available() {
        let (mut y, threads) = (Dense::zeros(3, 20), Threads::one());
        softmax(isa, Form::Plain, &x, &mut y, &threads).unwrap();
        assert!(y.row(1).iter().all(|y| y.is_nan()));
        assert!(y.row(0).iter().chain(y.row(2)).all(|y| !y.is_nan()));
        norm::layer(isa, &norm, &x, &mut y, &threads).unwrap();
        assert!(y.row(1).iter().all(|y| y.is_nan()));
        assert!(y.row(0).iter().chain(y.row(2)).all(|y| !y.is_nan()));
        let low = Dense::<f32>::from_fn(1, 3, |_, c| [f64::NEG_INFINITY, 0.0, 0.0][c]);
        let mut y = Dense::zeros(1, 3);
        softmax(isa, Form::Plain, &low, &mut y, &threads).unwrap();
        assert_eq!(y.row(0), [0.0, 0.5, 0.5]);
    }
}

#[test]
fn sizes_are_checked() {
    let (isa, threads) = (Isa::best(), Threads::one());
    let problem = Problem::<f32>::new((4, 3), 0.0);
    let (x, other) = (&problem.x, cases::dense::<f32>(4, 2, 1));
    let mut y = Dense::zeros(4, 2);
    assert!(norm::layer(isa, &problem.norm(), x, &mut y, &threads).is_err());
    assert!(norm::layer(isa, &problem.norm(), &other, &mut y, &threads).is_err());
    assert!(softmax(isa, Form::Log, x, &mut y, &threads).is_err());
    assert!(softmax_backward(isa, Form::Log, (x, &other), &mut y, &threads).is_err());
    let moments = norm::moments(isa, x, &threads);
    assert!(Scaling::batch(&moments, 1, EPS).is_err());
    let scaling = Scaling::batch(&moments, 4, EPS).unwrap();
    let narrow = Norm { gamma: &[1.0f32; 2], beta: &[0.0; 2], eps: EPS };
    assert!(scaling.columns(&narrow).is_err());
    let columns = scaling.columns(&problem.norm()).unwrap();
    assert!(columns.forward(Forward::new(&other)).is_err());
    let mut sums = [[0.0f32; 3]; 2];
    let [dgamma, dbeta] = &mut sums;
    let outputs = Grads { x: MatMut::from(&mut y), gamma: &mut dgamma[..], beta: &mut dbeta[..] };
    let inputs = (x, &problem.dy);
    assert!(norm::backward(isa, (&scaling, &problem.norm()), inputs, outputs, &threads).is_err());
    let mut y = Dense::zeros(4, 3);
    let outputs = Grads { x: MatMut::from(&mut y), gamma: &mut dgamma[..], beta: &mut dbeta[..2] };
    assert!(norm::backward(isa, (&scaling, &problem.norm()), inputs, outputs, &threads).is_err());
}
