//! [`lacis_kernels::attention`] against `lacis_core::reference`.

use half::bf16;
use lacis_core::reference as truth;
use lacis_core::{Csr, CsrParts, Dense, Element, Rng, Threads};
use lacis_kernels::attention::{
    DotAttention, DotAttentionGrads, DotGiven, Gat, GatGrads, GatV2, GatV2Grads, Given,
};
use lacis_kernels::dropout::Dropout;
use lacis_kernels::{Isa, Mat, Stored};

use crate::cases::{assert_close, bits, dense, longest_row, matrices, matrix, on_every_machine};

const SLOPE: f64 = 0.2;
const SCALE: f64 = 0.7;

/// What a test tries.
#[derive(Clone, Copy, Debug)]
struct Case {
    heads: usize,
    channels: usize,
    features: bool,
    bias: bool,
    dropout: bool,
    /// Elements between the end of a row and the next.
    gap: usize,
    /// Channels of the values of a dot product, where these are not as wide as keys.
    value_channels: Option<usize>,
}

/// What stands in gaps of results, and must stay.
const GAP: f64 = 123.0;

impl Case {
    fn plain(heads: usize, channels: usize) -> Self {
        let (features, bias, dropout) = (false, false, false);
        Case { heads, channels, features, bias, dropout, gap: 0, value_channels: None }
    }

    fn full(heads: usize, channels: usize) -> Self {
        Case { features: true, bias: true, dropout: true, ..Case::plain(heads, channels) }
    }

    fn width(self) -> usize {
        self.heads * self.channels
    }

    fn value_width(self) -> usize {
        self.heads * self.value_channels.unwrap_or(self.channels)
    }

    fn dropout(self) -> Option<Dropout<'static>> {
        self.dropout.then(|| Dropout::new(Rng::new(17, "coefficients"), 0.4).unwrap())
    }

    /// Some numbers; those in the gaps are none.
    fn dense<T: Element>(self, n_rows: usize, n_cols: usize, seed: u64) -> Dense<T> {
        let numbers = dense::<T>(n_rows, n_cols, seed);
        let mut strided = self.filled(n_rows, n_cols, f64::NAN);
        (0..n_rows).for_each(|i| strided.row_mut(i).copy_from_slice(numbers.row(i)));
        strided
    }

    /// A matrix of what must be overwritten.
    fn unset<T: Element>(self, n_rows: usize, n_cols: usize) -> Dense<T> {
        let mut strided = self.filled(n_rows, n_cols, GAP);
        (0..n_rows).for_each(|i| strided.row_mut(i).fill(T::from_f64(f64::NAN)));
        strided
    }

    fn filled<T: Element>(self, n_rows: usize, n_cols: usize, value: f64) -> Dense<T> {
        let stride = n_cols + self.gap;
        let data = vec![T::from_f64(value); n_rows * stride];
        Dense::new(data.into(), n_rows, n_cols, stride).unwrap()
    }
}

/// Rows of `x`, which are in the caller's order, in stored order.
fn stored<T: Element>(a: &Csr, x: &Dense<T>) -> Dense<f64> {
    let at = |e: usize| a.order().map_or(e, |order| order[e] as usize);
    Dense::from_fn(x.n_rows(), x.n_cols(), |e, c| x.at(at(e), c))
}

/// The reverse.
fn callers(a: &Csr, x: &Dense<f64>) -> Dense<f64> {
    let mut out = Dense::zeros(x.n_rows(), x.n_cols());
    for e in 0..x.n_rows() {
        let at = a.order().map_or(e, |order| order[e] as usize);
        out.row_mut(at).copy_from_slice(x.row(e));
    }
    out
}

/// Everything that an attention takes, in the caller's order.
struct Inputs<T: Stored> {
    target: Dense<T>,
    source: Dense<T>,
    values: Dense<T>,
    vectors: [Dense<T::Sum>; 3],
    features: Option<Dense<T>>,
    bias: Option<Dense<T::Sum>>,
    grad: Dense<T>,
}

/// The same for the reference.
struct Wide {
    target: Dense<f64>,
    source: Dense<f64>,
    values: Dense<f64>,
    vectors: [Dense<f64>; 3],
    features: Option<Dense<f64>>,
    bias: Option<Dense<f64>>,
    mask: Option<Dense<f64>>,
    grad: Dense<f64>,
}

impl<T: Stored> Inputs<T> {
    fn new(a: &Csr, case: Case) -> Self {
        let (k, nnz) = (case.width(), a.nnz());
        Inputs {
            target: case.dense(a.n_rows(), k, 1),
            source: case.dense(a.n_cols(), k, 2),
            values: case.dense(a.n_cols(), case.value_width(), 3),
            vectors: [4, 5, 6].map(|seed| case.dense(case.heads, case.channels, seed)),
            features: case.features.then(|| case.dense(nnz, k, 7)),
            bias: case.bias.then(|| case.dense(nnz, case.heads, 8)),
            grad: case.dense(a.n_rows(), case.value_width(), 9),
        }
    }

    fn wide(&self, a: &Csr, case: Case) -> Wide {
        let mask = case.dropout().map(|dropout| {
            let factor = |e: usize, h: usize| dropout.factor(e as u32, h);
            stored(a, &Dense::<f64>::from_fn(a.nnz(), case.heads, factor))
        });
        Wide {
            target: self.target.cast(),
            source: self.source.cast(),
            values: self.values.cast(),
            vectors: [0, 1, 2].map(|v| self.vectors[v].cast()),
            features: self.features.as_ref().map(|f| stored(a, f)),
            bias: self.bias.as_ref().map(|b| stored(a, b)),
            mask,
            grad: self.grad.cast(),
        }
    }
}

impl Wide {
    fn edges(&self) -> truth::PerEdge<'_> {
        truth::PerEdge {
            features: self.features.as_ref(),
            bias: self.bias.as_ref(),
            mask: self.mask.as_ref(),
        }
    }
}

/// What rounding may cost: an epsilon for each number that is added, of magnitudes up to 4, in
/// every factor; a result stored in bf16 is off by its epsilon, in the forward pass's result too.
fn tolerance<T: Stored>(a: &Csr, case: Case, rows: f64) -> f64 {
    let epsilon = match T::DTYPE {
        lacis_core::DType::F64 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    };
    let added = longest_row(a) + longest_row(&a.transpose(&Threads::one()));
    let magnitude = 16.0 * (case.channels as f64 + 8.0);
    let sums = epsilon * added * magnitude * rows.max(1.0);
    match T::DTYPE {
        lacis_core::DType::Bf16 => sums + 2f64.powi(-8) * added * (case.channels as f64 + 4.0),
        _ => sums,
    }
}

/// Results of a run: wide copies to compare, and bits.
#[derive(PartialEq)]
struct Found {
    bits: Vec<Vec<u8>>,
    wide: Vec<Bits>,
}

/// Compares as bits, so that NaN equals NaN.
struct Bits(Dense<f64>);

impl PartialEq for Bits {
    fn eq(&self, other: &Self) -> bool {
        bits(&self.0) == bits(&other.0)
    }
}

impl Found {
    fn new() -> Self {
        Found { bits: Vec::new(), wide: Vec::new() }
    }

    fn push<T: Element>(&mut self, x: &Dense<T>) {
        for row in x.data().chunks(x.stride().max(1)) {
            let gap = row.iter().skip(x.n_cols());
            assert!(gap.into_iter().all(|x| x.to_f64() == GAP), "written past a row's end");
        }
        self.bits.push(bits(x));
        self.wide.push(Bits(x.cast()));
    }
}

fn compare<T: Stored>(a: &Csr, case: Case, found: Vec<(Isa, Found)>, right: &[Dense<f64>]) {
    let rows = a.nnz() as f64;
    for (isa, found) in found {
        assert_eq!(found.wide.len(), right.len());
        for (at, (found, right)) in found.wide.iter().zip(right).enumerate() {
            // The gradients of vectors add over all rows.
            let over_rows = right.n_rows() == case.heads && right.n_cols() == case.channels;
            let tolerance = tolerance::<T>(a, case, if over_rows { rows.sqrt() } else { 1.0 });
            let what = format!("{} {case:?} {} output {at}", T::DTYPE as u8, isa.name());
            assert_close(&found.0, right, tolerance, &what);
        }
    }
}

fn check_gat<T: Stored>(a: &Csr, case: Case, shared: bool) {
    let inputs = Inputs::<T>::new(a, case);
    let wide = inputs.wide(a, case);
    let transpose = a.transpose_with_order(&Threads::one()).unwrap();
    let reference = truth::Gat {
        target: if shared { &wide.source } else { &wide.target },
        source: &wide.source,
        target_vectors: &wide.vectors[0],
        source_vectors: &wide.vectors[1],
        edge_vectors: case.features.then_some(&wide.vectors[2]),
        edges: wide.edges(),
        slope: SLOPE,
    };
    let y = reference.forward(a).unwrap();
    let grads = reference.backward(a, &wide.grad).unwrap();
    let source = if shared {
        Dense::from_fn(y.n_rows(), y.n_cols(), |i, c| grads.source.at(i, c) + grads.target.at(i, c))
    } else {
        grads.source
    };
    let mut right = vec![y, source, grads.target_vectors, grads.source_vectors];
    right.push(callers(a, &grads.bias));
    if let Some((features, vectors)) = &grads.edge {
        right.extend([callers(a, features), vectors.clone()]);
    }
    if !shared {
        right.push(grads.target);
    }
    let [t, u, w] = [0, 1, 2].map(|v| Mat::from(&inputs.vectors[v]));
    let mut gat = Gat::new(a.view(), &inputs.source, [t, u], SLOPE).unwrap();
    if !shared {
        gat = gat.with_target(&inputs.target).unwrap();
    }
    if let Some(features) = &inputs.features {
        gat = gat.with_features(features, w).unwrap();
    }
    if let Some(bias) = &inputs.bias {
        gat = gat.with_bias(bias).unwrap();
    }
    if let Some(dropout) = case.dropout() {
        gat = gat.with_dropout(dropout).unwrap();
    }
    for kept in [Kept::Nothing, Kept::Sums, Kept::NotEvenResults] {
        // Gradients of what edges have follow from the result.
        if case.features && kept == Kept::NotEvenResults {
            continue;
        }
        let found = on_every_machine(|isa, threads| {
            run_gat(isa, &gat, (a, &transpose), (&inputs, case, shared, kept), threads)
        });
        compare::<T>(a, case, found, &right);
    }
}

/// A result with a bias added to its rows, and the bias; none where that would round much away.
fn biased<T: Stored>(y: &Dense<T>) -> (Dense<T>, Dense<T::Sum>) {
    let steps = if size_of::<T>() > 2 { 0.25 } else { 0.0 };
    let of = |j: usize| steps * (j % 5) as f64 - 2.0 * steps;
    let more = Dense::from_fn(y.n_rows(), y.n_cols(), |i, j| y.row(i)[j].to_f64() + of(j));
    (more, Dense::from_fn(1, y.n_cols(), |_, j| of(j)))
}

/// What is kept of the forward pass for the backward pass.
#[derive(Clone, Copy, PartialEq)]
enum Kept {
    Nothing,
    Sums,
    NotEvenResults,
}

/// The gradients of features, whose place they take, and of vectors.
fn in_place<T: Stored>(
    isa: Isa,
    (a, given): (&Csr, &Given<'_, T>),
    (inputs, case): (&Inputs<T>, Case),
    threads: &Threads,
) -> [Vec<u8>; 3] {
    let [mut t, mut u] = [0; 2].map(|_| case.unset(case.heads, case.channels));
    let mut z = inputs.source.clone();
    let vectors = [0, 1].map(|v| Mat::from(&inputs.vectors[v]));
    let mut gat = Gat::in_place(a.view(), case.width(), vectors, SLOPE).unwrap();
    if let Some(bias) = &inputs.bias {
        gat = gat.with_bias(bias).unwrap();
    }
    if let Some(dropout) = case.dropout() {
        gat = gat.with_dropout(dropout).unwrap();
    }
    let grads = GatGrads {
        source: (&mut z).into(),
        target: None,
        target_vectors: (&mut t).into(),
        source_vectors: (&mut u).into(),
        edge_vectors: None,
        features: None,
        bias: None,
    };
    gat.backward(isa, given, grads, threads).unwrap();
    [bits(&z), bits(&t), bits(&u)]
}

fn run_gat<T: Stored>(
    isa: Isa,
    gat: &Gat<'_, T>,
    (a, transpose): (&Csr, &Csr),
    (inputs, case, shared, kept): (&Inputs<T>, Case, bool, Kept),
    threads: &Threads,
) -> Found {
    let (n, m, nnz, k) = (a.n_rows(), a.n_cols(), a.nnz(), case.width());
    let columns = match kept {
        Kept::Nothing | Kept::NotEvenResults => case.heads,
        Kept::Sums => Gat::<T>::kept_columns(case.heads, case.channels),
    };
    let (mut y, mut lse) = (case.unset::<T>(n, k), case.unset::<T::Sum>(n, columns));
    gat.forward(isa, (&mut y, &mut lse), threads).unwrap();
    let mut source = case.unset(m, k);
    let mut target = case.unset(n, k);
    let [mut t, mut u, mut w] = [0; 3].map(|_| case.unset(case.heads, case.channels));
    let (mut features, mut bias) = (case.unset(nnz, k), case.unset(nnz, case.heads));
    let (grad, view) = ((&inputs.grad).into(), transpose.view());
    // Without gradients of edges the sums that were kept are used; and a layer's bias may be in y.
    let (more, shift) = biased(&y);
    let absent = Dense::zeros(n, 0);
    let mut last_given = None;
    let last = match kept {
        Kept::NotEvenResults => (false, &absent, None),
        _ => (false, &more, Some((&shift).into())),
    };
    for (asked, y, added) in [(true, &y, None), (false, &y, None), last] {
        let lse = (&lse).into();
        let given = Given { transpose: view, y: y.into(), bias: added, lse, grad };
        last_given = Some(given);
        let grads = GatGrads {
            source: (&mut source).into(),
            target: (!shared).then_some((&mut target).into()),
            target_vectors: (&mut t).into(),
            source_vectors: (&mut u).into(),
            edge_vectors: case.features.then_some((&mut w).into()),
            features: case.features.then_some((&mut features).into()),
            bias: asked.then_some((&mut bias).into()),
        };
        gat.backward(isa, &given, grads, threads).unwrap();
    }
    if let Some(given) = last_given.filter(|_| shared && !case.features) {
        let expected = [bits(&source), bits(&t), bits(&u)];
        assert!(in_place(isa, (a, &given), (inputs, case), threads) == expected, "in place");
    }
    let mut found = Found::new();
    found.push(&y);
    found.push(&source);
    found.push(&t);
    found.push(&u);
    found.push(&bias);
    if case.features {
        found.push(&features);
        found.push(&w);
    }
    if !shared {
        found.push(&target);
    }
    found
}

fn check_gatv2<T: Stored>(a: &Csr, case: Case) {
    let inputs = Inputs::<T>::new(a, case);
    let wide = inputs.wide(a, case);
    let transpose = a.transpose_with_order(&Threads::one()).unwrap();
    let reference = truth::GatV2 {
        target: &wide.target,
        source: &wide.source,
        vectors: &wide.vectors[0],
        edges: wide.edges(),
        slope: SLOPE,
    };
    let y = reference.forward(a).unwrap();
    let grads = reference.backward(a, &wide.grad).unwrap();
    let (features, bias) = (callers(a, &grads.features), callers(a, &grads.bias));
    let right = [y, grads.target, grads.source, grads.vectors, features, bias];
    let ends = [Mat::from(&inputs.target), Mat::from(&inputs.source)];
    let mut gat = GatV2::new(a.view(), ends, &inputs.vectors[0], SLOPE).unwrap();
    if let Some(features) = &inputs.features {
        gat = gat.with_features(features).unwrap();
    }
    if let Some(bias) = &inputs.bias {
        gat = gat.with_bias(bias).unwrap();
    }
    if let Some(dropout) = case.dropout() {
        gat = gat.with_dropout(dropout).unwrap();
    }
    let found = on_every_machine(|isa, threads| {
        let (n, m, nnz, k) = (a.n_rows(), a.n_cols(), a.nnz(), case.width());
        let (mut y, mut lse) = (case.unset::<T>(n, k), case.unset::<T::Sum>(n, case.heads));
        gat.forward(isa, (&mut y, &mut lse), threads).unwrap();
        let (mut target, mut source, mut features) =
            (case.unset(n, k), case.unset(m, k), case.unset(nnz, k));
        let (mut vectors, mut bias) =
            (case.unset(case.heads, case.channels), case.unset(nnz, case.heads));
        let (grad, view) = ((&inputs.grad).into(), transpose.view());
        // A layer's bias may be in y.
        let (more, shift) = biased(&y);
        for (y, added) in [(&y, None), (&more, Some((&shift).into()))] {
            let lse = (&lse).into();
            let given = Given { transpose: view, y: y.into(), bias: added, lse, grad };
            let grads = GatV2Grads {
                target: (&mut target).into(),
                source: (&mut source).into(),
                vectors: (&mut vectors).into(),
                features: Some((&mut features).into()),
                bias: Some((&mut bias).into()),
            };
            gat.backward(isa, &given, grads, threads).unwrap();
        }
        let mut found = Found::new();
        [&y, &target, &source].into_iter().for_each(|x| found.push(x));
        found.push(&vectors);
        found.push(&features);
        found.push(&bias);
        found
    });
    compare::<T>(a, case, found, &right);
}

fn check_dot<T: Stored>(a: &Csr, case: Case) {
    let inputs = Inputs::<T>::new(a, case);
    let wide = inputs.wide(a, case);
    let transpose = a.transpose_with_order(&Threads::one()).unwrap();
    let reference = truth::DotAttention {
        queries: &wide.target,
        keys: &wide.source,
        values: &wide.values,
        heads: case.heads,
        scale: SCALE,
        edges: wide.edges(),
    };
    let y = reference.forward(a).unwrap();
    let grads = reference.backward(a, &wide.grad).unwrap();
    let mut right = vec![y, grads.queries, grads.keys, grads.values, callers(a, &grads.bias)];
    right.extend(grads.features.as_ref().map(|features| callers(a, features)));
    let width = case.value_width();
    let mut dot = DotAttention::new(a.view(), &inputs.target, width, case.heads, SCALE).unwrap();
    if let Some(features) = &inputs.features {
        dot = dot.with_features(features).unwrap();
    }
    if let Some(bias) = &inputs.bias {
        dot = dot.with_bias(bias).unwrap();
    }
    if let Some(dropout) = case.dropout() {
        dot = dot.with_dropout(dropout).unwrap();
    }
    // With what edges get, and without.
    for wanted in [true, false] {
        let found = on_every_machine(|isa, threads| {
            run_dot(&dot, (isa, threads), (&inputs, &transpose), (case, wanted))
        });
        let count = if wanted { right.len() } else { 4 };
        compare::<T>(a, case, found, &right[..count]);
    }
}

/// The result and all gradients, those of edges where they are wanted.
fn run_dot<T: Stored>(
    dot: &DotAttention<'_, T>,
    (isa, threads): (Isa, &Threads),
    (inputs, transpose): (&Inputs<T>, &Csr),
    (case, wanted): (Case, bool),
) -> Found {
    let (n, m, nnz) = (transpose.n_cols(), transpose.n_rows(), transpose.nnz());
    let (k, width) = (case.width(), case.value_width());
    let (mut y, mut lse) = (case.unset::<T>(n, width), case.unset::<T::Sum>(n, case.heads));
    let given = [&inputs.source, &inputs.values].map(Mat::from);
    dot.forward(isa, given, (&mut y, &mut lse), threads).unwrap();
    let [mut queries, mut features] = [(n, k), (nnz, k)].map(|(rows, k)| case.unset(rows, k));
    let (mut ends, mut bias) = (case.unset(m, k + width), case.unset(nnz, case.heads));
    for j in 0..m {
        let (key, value) = ends.row_mut(j).split_at_mut(k);
        key.copy_from_slice(inputs.source.row(j));
        value.copy_from_slice(inputs.values.row(j));
    }
    let given =
        DotGiven { transpose: transpose.view(), lse: (&lse).into(), grad: (&inputs.grad).into() };
    let grads = DotAttentionGrads {
        queries: (&mut queries).into(),
        ends: (&mut ends).into(),
        features: (wanted && case.features).then_some((&mut features).into()),
        bias: wanted.then_some((&mut bias).into()),
    };
    dot.backward(isa, &given, grads, threads).unwrap();
    // Nothing is written between rows.
    Found::new().push(&ends);
    let part = |from: usize, width: usize| {
        let row = |j: usize| ends.row(j)[from..from + width].to_vec();
        let data: Vec<T> = (0..m).flat_map(row).collect();
        Dense::from_vec(data, m, width).unwrap()
    };
    let mut found = Found::new();
    [&y, &queries, &part(0, k), &part(k, width)].into_iter().for_each(|x| found.push(x));
    if wanted {
        found.push(&bias);
        if case.features {
            found.push(&features);
        }
    }
    found
}

fn check_all<T: Stored>(a: &Csr, case: Case) {
    check_gat::<T>(a, case, false);
    if a.n_rows() == a.n_cols() {
        check_gat::<T>(a, case, true);
    }
    check_gatv2::<T>(a, case);
    check_dot::<T>(a, case);
}

/// The matrix with a caller's order that is not the stored one.
fn shuffled(a: &Csr) -> Csr {
    let mut order: Vec<u32> = (0..a.nnz() as u32).collect();
    Rng::new(5, "order").stream(0).shuffle(&mut order);
    let parts = CsrParts { order: Some(order.into()), ..a.parts().clone() };
    Csr::new(parts, &Threads::one()).unwrap()
}

#[test]
fn widths_and_heads() {
    let a = matrix(9, 9, 40, false);
    for heads in [1, 2, 3, 8, 17] {
        for channels in [1, 2, 3, 4, 5, 8, 13, 16, 17, 41] {
            check_all::<f32>(&a, Case::plain(heads, channels));
        }
    }
}

#[test]
fn everything_per_edge() {
    let a = shuffled(&matrix(13, 11, 60, false));
    for (heads, channels) in [(1, 1), (1, 41), (2, 3), (3, 16), (8, 4), (5, 9), (17, 2)] {
        check_all::<f32>(&a, Case::full(heads, channels));
        for part in 0..3 {
            let case = Case {
                features: part == 0,
                bias: part == 1,
                dropout: part == 2,
                ..Case::plain(heads, channels)
            };
            check_all::<f32>(&a, case);
        }
    }
}

#[test]
fn every_number_type() {
    for (heads, channels) in [(1, 5), (4, 4), (3, 7), (2, 32)] {
        for case in [Case::plain(heads, channels), Case::full(heads, channels)] {
            let a = matrix(13, 11, 60, false);
            check_all::<f64>(&a, case);
            check_all::<bf16>(&a, case);
        }
    }
}

#[test]
fn small_and_empty_matrices() {
    for a in matrices(true) {
        check_all::<f32>(&a, Case::full(2, 3));
        check_all::<f32>(&a, Case::plain(1, 20));
        check_all::<f32>(&shuffled(&a), Case::full(4, 8));
    }
}

/// A matrix with rows of these lengths, over and over, and after half of them a row that is too
/// long to be done together with others; column 1 is as long.
fn rows_of_lengths(n_rows: usize, n_cols: usize, lengths: &[usize]) -> Csr {
    const HUB: usize = 2100;
    let rng = Rng::new(n_cols as u64, "lengths");
    let (mut ptr, mut cols) = (vec![0], Vec::new());
    for i in 0..n_rows {
        let length = if i == n_rows / 2 { HUB } else { lengths[i % lengths.len()] };
        for e in 0..length {
            let drawn = rng.block((i * HUB + e) as u64)[0];
            cols.push(if drawn.is_multiple_of(3) { 1 } else { drawn % n_cols as u32 });
        }
        ptr.push(cols.len() as u32);
    }
    let row_ptr = lacis_core::RowPtr::Narrow(ptr.into());
    let parts = CsrParts { n_cols, row_ptr, cols: cols.into(), values: None, order: None };
    Csr::new(parts, &Threads::one()).unwrap()
}

#[test]
fn short_rows_beside_long_ones() {
    let a = rows_of_lengths(150, 150, &[5, 0, 1, 5, 16, 17, 5, 40]);
    assert!(longest_row(&a) > 2048.0 && longest_row(&a.transpose(&Threads::one())) > 1000.0);
    for heads in [1, 2, 3, 8] {
        for channels in [1, 4, 8, 10, 16, 41, 80] {
            check_gat::<f32>(&a, Case::plain(heads, channels), true);
        }
    }
    for (heads, channels) in [(8, 4), (3, 8), (1, 10), (2, 16), (1, 41), (2, 80)] {
        check_dot::<f32>(&a, Case::plain(heads, channels));
    }
    let gaps = Case { gap: 3, ..Case::plain(8, 4) };
    check_gat::<f32>(&a, gaps, true);
    check_dot::<f32>(&a, gaps);
    check_dot::<f32>(&a, Case { value_channels: Some(3), ..Case::plain(1, 20) });
    check_gat::<f32>(&a, Case { gap: 1, ..Case::plain(1, 10) }, true);
    // What edges have of their own is done row by row.
    check_gat::<f32>(&a, Case { dropout: true, ..Case::plain(8, 4) }, true);
}

#[test]
fn short_rows_of_far_columns() {
    // So many columns that their rows are asked for; most have no entries.
    let a = rows_of_lengths(90, 20_000, &[3, 0, 7, 1]);
    for (heads, channels) in [(8, 4), (8, 2), (1, 41), (2, 16)] {
        check_gat::<f32>(&a, Case::plain(heads, channels), false);
        check_dot::<f32>(&a, Case::plain(heads, channels));
    }
}

#[test]
fn far_scores_and_none_at_all() {
    // Scores far apart, and rows of nothing but scores that are no numbers.
    let a = rows_of_lengths(70, 70, &[5, 2]);
    let case = Case::plain(8, 4);
    let mut inputs = Inputs::<f32>::new(&a, case);
    (0..70).for_each(|i| inputs.source.row_mut(i).iter_mut().for_each(|x| *x *= 60.0));
    let [t, u] = [0, 1].map(|v| Mat::from(&inputs.vectors[v]));
    let wide = inputs.wide(&a, case);
    let reference = truth::Gat {
        target: &wide.source,
        source: &wide.source,
        target_vectors: &wide.vectors[0],
        source_vectors: &wide.vectors[1],
        edge_vectors: None,
        edges: wide.edges(),
        slope: SLOPE,
    };
    let right = reference.forward(&a).unwrap();
    let run = |isa, source: &Dense| {
        let gat = Gat::new(a.view(), source, [t, u], SLOPE).unwrap();
        let (mut y, mut lse) = (case.unset::<f32>(70, 32), case.unset::<f32>(70, 8));
        gat.forward(isa, (&mut y, &mut lse), &Threads::one()).unwrap();
        y
    };
    for isa in Isa::available() {
        // Scores of some hundreds are known to 1e-4, which is how far a weight may be off.
        assert_close(&run(isa, &inputs.source), &right, 60.0 * 1e-3, isa.name());
        let mut broken = inputs.source.clone();
        broken.row_mut(7).fill(f32::NAN);
        let y = run(isa, &broken);
        for i in 0..70 {
            let names_it = a.row_cols(i).contains(&7) || i == 7;
            let is_nan = y.row(i).iter().all(|x| x.is_nan());
            assert_eq!(is_nan, names_it && !a.row(i).is_empty(), "row {i} {}", isa.name());
        }
    }
}

#[test]
fn many_slices_and_a_row_in_parts() {
    let a = matrix(300, 200, 130_000, false);
    let case = Case { dropout: true, ..Case::plain(2, 3) };
    check_all::<f32>(&a, case);
    check_dot::<f32>(&a, Case::plain(2, 3));
}

#[test]
fn what_is_not_a_number_stays_in_its_rows() {
    let a = matrix(9, 9, 40, false);
    let case = Case::plain(2, 5);
    let mut inputs = Inputs::<f32>::new(&a, case);
    inputs.source.row_mut(3)[7] = f32::NAN;
    let wide = inputs.wide(&a, case);
    let (edges, slope) = (wide.edges(), SLOPE);
    let reference = truth::GatV2 {
        target: &wide.target,
        source: &wide.source,
        vectors: &wide.vectors[0],
        edges,
        slope,
    };
    let right = reference.forward(&a).unwrap();
    assert!(right.rows().flatten().any(|x| x.is_nan()));
    assert!(right.rows().flatten().any(|x| *x > 0.0));
    let ends = [Mat::from(&inputs.target), Mat::from(&inputs.source)];
    let gat = GatV2::new(a.view(), ends, &inputs.vectors[0], SLOPE).unwrap();
    for isa in Isa::available() {
        let (mut y, mut lse) = (case.unset::<f32>(9, 10), case.unset::<f32>(9, 2));
        gat.forward(isa, (&mut y, &mut lse), &Threads::one()).unwrap();
        assert_close(&y, &right, tolerance::<f32>(&a, case, 1.0), isa.name());
    }
}

#[test]
fn rows_that_do_not_follow_one_another() {
    let a = matrix(9, 9, 40, false);
    for gap in [1, 7, 16] {
        for (heads, channels) in [(1, 3), (1, 17), (1, 41), (2, 4), (3, 2), (3, 5), (8, 8), (2, 16)]
        {
            check_all::<f32>(&a, Case { gap, ..Case::plain(heads, channels) });
        }
        for (heads, channels) in [(1, 5), (8, 4), (3, 17)] {
            let case = Case { gap, ..Case::full(heads, channels) };
            check_all::<f32>(&a, case);
            check_all::<f64>(&a, case);
            check_all::<bf16>(&a, case);
        }
    }
}

#[test]
fn values_of_another_width_than_keys() {
    let a = matrix(13, 11, 60, false);
    for heads in [1, 2, 3, 8] {
        for (channels, values) in [(4, 3), (4, 16), (5, 41), (17, 1), (41, 5), (16, 4), (8, 17)] {
            for dropout in [false, true] {
                let case = Case {
                    value_channels: Some(values),
                    dropout,
                    gap: if dropout { 3 } else { 0 },
                    ..Case::plain(heads, channels)
                };
                check_dot::<f32>(&a, case);
                check_dot::<f64>(&a, case);
            }
        }
    }
}

#[test]
fn edges_keep_their_dropout_in_a_subgraph() {
    // Row 1 alone, its edges named as in the whole graph, gives row 1 of the whole graph.
    let a = matrix(9, 9, 40, false);
    let case = Case::plain(2, 4);
    let inputs = Inputs::<f32>::new(&a, case);
    let dropout = Dropout::new(Rng::new(3, "coefficients"), 0.5).unwrap();
    let row = a.view().row(1);
    let parts = CsrParts {
        n_cols: 9,
        row_ptr: lacis_core::RowPtr::Narrow(vec![0, row.len() as u32].into()),
        cols: a.view().cols[row.clone()].to_vec().into(),
        values: None,
        order: None,
    };
    let (names, part) =
        (row.map(|e| e as u32).collect::<Vec<_>>(), Csr::new(parts, &Threads::one()).unwrap());
    assert!(names.len() > 1);
    let run = |a: &Csr, target: Mat<'_>, dropout: Dropout<'_>| {
        let ends = [target, Mat::from(&inputs.source)];
        let gat = GatV2::new(a.view(), ends, &inputs.vectors[0], SLOPE).unwrap();
        let (mut y, mut lse) = (case.unset::<f32>(a.n_rows(), 8), case.unset(a.n_rows(), 2));
        let gat = gat.with_dropout(dropout).unwrap();
        gat.forward(Isa::best(), (&mut y, &mut lse), &Threads::one()).unwrap();
        y
    };
    let target = Mat::from(&inputs.target);
    let (whole, one) = (run(&a, target, dropout), target.rows(1..2));
    assert_eq!(run(&part, one, dropout.at_rows(&names)).row(0), whole.row(1));
    let gat = Gat::<f32>::new(a.view(), &inputs.source, [(&inputs.vectors[0]).into(); 2], SLOPE);
    assert!(gat.unwrap().with_dropout(dropout.at_rows(&names)).is_err());
}

#[test]
fn sizes_are_checked() {
    let a = matrix(5, 4, 10, false);
    let case = Case::full(2, 3);
    let inputs = Inputs::<f32>::new(&a, case);
    let wrong: Dense = Dense::zeros(3, 7);
    let [t, u, w] = [0, 1, 2].map(|v| Mat::from(&inputs.vectors[v]));
    let new = |source| Gat::<f32>::new(a.view(), source, [t, u], SLOPE);
    assert!(new(&wrong).is_err());
    let gat = new(&inputs.source).unwrap();
    assert!(gat.with_target(&wrong).is_err());
    assert!(gat.with_bias(&wrong).is_err());
    assert!(gat.with_features(&wrong, w).is_err());
    let (mut y, mut lse): (Dense, Dense) = (Dense::zeros(5, 6), Dense::zeros(5, 2));
    let (isa, threads) = (Isa::best(), Threads::one());
    // Five targets and four sources cannot share features.
    assert!(gat.forward(isa, (&mut y, &mut lse), &threads).is_err());
    let gat = gat.with_target(&inputs.target).unwrap();
    assert!(gat.forward(isa, (&mut Dense::zeros(5, 5), &mut lse), &threads).is_err());
    assert!(gat.forward(isa, (&mut y, &mut Dense::zeros(5, 1)), &threads).is_err());
    assert!(gat.forward(isa, (&mut y, &mut lse), &threads).is_ok());
    assert!(GatV2::new(a.view(), [(&wrong).into(), (&inputs.source).into()], t, SLOPE).is_err());
    let (width, wide) = (case.width(), case.value_width());
    assert!(DotAttention::new(a.view(), &inputs.target, wide, 4, SCALE).is_err());
    assert!(DotAttention::new(a.view(), &inputs.target, wide, 0, SCALE).is_err());
    assert!(DotAttention::new(a.view(), &inputs.source, wide, 2, SCALE).is_err());
    let dot = DotAttention::new(a.view(), &inputs.target, wide, 2, SCALE).unwrap();
    let [keys, values] = [&inputs.source, &inputs.values].map(Mat::from);
    let (mut y, mut lse): (Dense, Dense) = (Dense::zeros(5, wide), Dense::zeros(5, 2));
    assert!(dot.forward(isa, [keys, (&wrong).into()], (&mut y, &mut lse), &threads).is_err());
    assert!(
        dot.forward(isa, [(&inputs.target).into(), values], (&mut y, &mut lse), &threads).is_err()
    );
    assert!(dot.forward(isa, [keys, values], (&mut y, &mut lse), &threads).is_ok());
    for (columns, fits) in [(width + wide, true), (width, false)] {
        let (mut queries, mut ends) = (Dense::zeros(5, width), Dense::zeros(4, columns));
        let transpose = a.transpose(&threads);
        let given = DotGiven { transpose: transpose.view(), lse: (&lse).into(), grad: (&y).into() };
        let grads = DotAttentionGrads {
            queries: (&mut queries).into(),
            ends: (&mut ends).into(),
            features: None,
            bias: None,
        };
        assert_eq!(dot.backward(isa, &given, grads, &threads).is_ok(), fits);
    }
    // Dropout needs to know the edges by their positions.
    let dropout = Dropout::new(Rng::new(1, "coefficients"), 0.5).unwrap();
    let ends = [Mat::from(&inputs.target), Mat::from(&inputs.source)];
    let gatv2 = GatV2::new(a.view(), ends, t, SLOPE).unwrap();
    let gatv2 = gatv2.with_dropout(dropout).unwrap();
    let transpose = a.transpose(&threads);
    let (grad, view) = ((&inputs.grad).into(), transpose.view());
    let given = Given { transpose: view, y: (&y).into(), bias: None, lse: (&lse).into(), grad };
    let [mut dx, mut dz, mut dv]: [Dense; 3] =
        [Dense::zeros(5, 6), Dense::zeros(4, 6), Dense::zeros(2, 3)];
    let grads = GatV2Grads {
        target: (&mut dx).into(),
        source: (&mut dz).into(),
        vectors: (&mut dv).into(),
        features: None,
        bias: None,
    };
    assert!(gatv2.backward(isa, &given, grads, &threads).is_err());
}
