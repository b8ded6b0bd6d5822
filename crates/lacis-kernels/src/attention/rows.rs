//! Who does which rows: the loop that every pass over a graph's rows runs in.
//!
//! ```text
//!   for each row i:  begin;  for each chunk of its entries: add to the row's sums;  finish
//! ```
//! A slice is an eighth of a small matrix, 32 K entries of a large one. A row of more entries is
//! cut into parts of that many, which different threads may do; their sums are merged in the order
//! of the parts. What rows add up to together, such as the gradient of a parameter, is added within
//! a slice and then over the slices in order.

use std::ops::Range;

use lacis_core::{CsrView, Threads};

use super::lanes::{self, LANES, Lanes, Vector};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::MatMut;
use crate::real::{Real, Stored};

/// Entries of a slice of rows at most, and of a part of a longer row.
const SLICE_ENTRIES: usize = 1 << 15;
/// Entries of a slice at least: fewer are done before another thread is awake.
const FEW_ENTRIES: usize = 1 << 10;
/// Slices of a small matrix, so that several threads have as much to do each.
const SLICES: usize = 8;

/// What is computed for every row of a sparse matrix.
pub(super) trait Pass<T: Stored>: Sync {
    /// Scratch memory of a thread.
    type Work;
    /// Makes it.
    fn work(&self) -> Self::Work;
    /// The matrix.
    fn adjacency(&self) -> CsrView<'_>;
    /// Entries of a chunk; vectors of a row's sums and of the totals.
    fn sizes(&self) -> Sizes;
    /// What the statistics of a row without entries are, where its features are 0.
    fn of_nothing(&self) -> Option<T::Sum> {
        Some(T::Sum::ZERO)
    }
    /// Whether entries are looked at; else only rows are.
    fn reads_entries(&self) -> bool {
        true
    }
    /// Does the first rows in a way of its own, up to the one that it returns; `out` begins with
    /// the row whose number is beside it.
    #[inline(always)]
    fn blocks(
        &self,
        _: &mut Self::Work,
        rows: Range<usize>,
        _: To<'_, '_, T>,
        _: &mut [Vector<T>],
    ) -> usize {
        rows.start
    }
    /// Whether what rows of features hold before they are written is to be found.
    fn finds_rows(&self) -> bool {
        false
    }
    /// Reads it, before the row is begun.
    #[inline(always)]
    fn find(&self, _: &mut Self::Work, _: &[T]) {}
    /// Reads what row `i` has, and sets its sums to what they are without entries.
    fn begin<M: Arith>(&self, work: &mut Self::Work, i: usize, sums: &mut [Vector<T>]);
    /// Adds entries to the sums of the row that was begun, and writes what each has of its own.
    fn entries<M: Arith>(
        &self,
        work: &mut Self::Work,
        entries: Range<usize>,
        sums: &mut [Vector<T>],
        own: &mut PerEntry<'_, T>,
    );
    /// Adds the sums of another part of the row.
    #[inline(always)]
    fn merge<M: Arith>(&self, sums: &mut [Vector<T>], part: &[Vector<T>]) {
        add(sums, part);
    }
    /// Writes the row.
    fn finish<M: Arith>(
        &self,
        work: &mut Self::Work,
        i: usize,
        sums: Sums<'_, T::Sum>,
        out: OutRow<'_, T>,
    );
}

/// How much room a pass needs.
#[derive(Clone, Copy, Default)]
pub(super) struct Sizes {
    pub chunk: usize,
    pub sums: usize,
    pub totals: usize,
}

/// Of a row, and of all rows of a slice.
pub(super) struct Sums<'a, F> {
    pub row: &'a mut [Lanes<F>],
    pub totals: &'a mut [Lanes<F>],
}

/// What a pass writes per row; what it does not write has no columns.
pub(super) struct Out<'a, T: Stored> {
    pub features: [MatMut<'a, T>; 2],
    pub stats: MatMut<'a, T::Sum>,
}

/// Where rows go, and the number of the first.
pub(super) type To<'o, 'a, T> = (&'o mut Out<'a, T>, usize);

/// One row of it.
pub(super) struct OutRow<'a, T: Stored> {
    pub features: [&'a mut [T]; 2],
    pub stats: &'a mut [T::Sum],
}

/// What a pass writes per entry, from entry `first` on.
pub(super) struct PerEntry<'a, T: Stored> {
    pub features: MatMut<'a, T>,
    pub bias: MatMut<'a, T::Sum>,
    first: usize,
}

/// A matrix of no columns, for what is not asked for.
pub(super) fn nothing<'a, T: Stored>(n_rows: usize) -> MatMut<'a, T> {
    MatMut { data: &mut [], n_rows, n_cols: 0, stride: 0 }
}

impl<'a, T: Stored> Out<'a, T> {
    fn split(self, ends: &[usize]) -> Vec<Out<'a, T>> {
        let [first, second] = self.features.map(|features| features.split(ends));
        let features = first.into_iter().zip(second).map(|(a, b)| [a, b]);
        let both = features.zip(self.stats.split(ends));
        both.map(|(features, stats)| Out { features, stats }).collect()
    }

    #[inline(always)]
    fn row(&mut self, i: usize) -> OutRow<'_, T> {
        let [first, second] = &mut self.features;
        OutRow { features: [first.row_mut(i), second.row_mut(i)], stats: self.stats.row_mut(i) }
    }
}

impl<T: Stored> OutRow<'_, T> {
    #[inline(always)]
    fn clear(self, stats: T::Sum) {
        for features in self.features {
            features.fill(T::narrow(T::Sum::ZERO));
        }
        self.stats.fill(stats);
    }
}

impl<'a, T: Stored> PerEntry<'a, T> {
    /// Gradients of every entry; what is absent is not asked for.
    pub fn new(
        nnz: usize,
        features: Option<MatMut<'a, T>>,
        bias: Option<MatMut<'a, T::Sum>>,
    ) -> Self {
        let (features, bias) = (features.unwrap_or(nothing(nnz)), bias.unwrap_or(nothing(nnz)));
        PerEntry { features, bias, first: 0 }
    }

    /// Nothing is asked for.
    pub fn none(nnz: usize) -> Self {
        PerEntry::new(nnz, None, None)
    }

    /// Whether anything is.
    #[inline(always)]
    pub fn asked_for(&self) -> bool {
        self.features.n_cols + self.bias.n_cols > 0
    }

    /// The features and the bias of entry `e`.
    #[inline(always)]
    pub fn entry(&mut self, e: usize) -> (&mut [T], &mut [T::Sum]) {
        let at = e - self.first;
        (self.features.row_mut(at), self.bias.row_mut(at))
    }

    fn split(self, ends: &[usize]) -> Vec<PerEntry<'a, T>> {
        let firsts = std::iter::once(0).chain(ends.iter().copied());
        let parts = self.features.split(ends).into_iter().zip(self.bias.split(ends));
        parts
            .zip(firsts)
            .map(|((features, bias), first)| PerEntry { features, bias, first })
            .collect()
    }
}

/// Some rows, or a part of one, or the parts of one put together.
struct Task<'a, P, T: Stored> {
    pass: &'a P,
    rows: Range<usize>,
    /// Instead of all entries of the rows.
    entries: Option<Range<usize>>,
    parts: &'a [Done<T::Sum>],
    out: Option<Out<'a, T>>,
    /// What a row of which this is a part holds before it is written, where that is to be found.
    before: Vec<T>,
    own: PerEntry<'a, T>,
}

/// What a task leaves: the totals of its rows, or the sums of a part.
struct Done<F> {
    sums: Vec<Lanes<F>>,
    totals: Vec<Lanes<F>>,
}

/// Consecutive rows that make a task, or one row that makes several.
fn slices(a: CsrView<'_>) -> Vec<Range<usize>> {
    let most = (a.cols.len() / SLICES).clamp(FEW_ENTRIES, SLICE_ENTRIES);
    let mut slices = Vec::new();
    let mut start = 0;
    for i in 0..a.n_rows() {
        if a.row(i).len() > SLICE_ENTRIES {
            if start < i {
                slices.push(start..i);
            }
            slices.push(i..i + 1);
            start = i + 1;
        } else if a.row_ptr.at(i + 1) - a.row_ptr.at(start) >= most {
            slices.push(start..i + 1);
            start = i + 1;
        }
    }
    if start < a.n_rows() {
        slices.push(start..a.n_rows());
    }
    slices
}

/// What becomes a task: a slice, or some entries of its one row.
type Piece = (usize, Option<Range<usize>>);

/// The parts of a row's entries.
fn parts(entries: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = entries.end;
    entries.step_by(SLICE_ENTRIES).map(move |start| start..(start + SLICE_ENTRIES).min(end))
}

/// Runs a pass over all rows. Returns the totals.
pub(super) fn run<T: Stored, P: Pass<T>>(
    isa: Isa,
    pass: &P,
    (out, own): (Out<'_, T>, PerEntry<'_, T>),
    threads: &Threads,
) -> Vec<Vector<T>> {
    let a = pass.adjacency();
    let slices = slices(a);
    let row_ends: Vec<usize> = slices.iter().map(|rows| rows.end).collect();
    // Each slice's rows, cut where they are too many entries for one task.
    let mut pieces: Vec<Piece> = Vec::new();
    let mut entry_ends = Vec::new();
    for (s, rows) in slices.iter().enumerate() {
        let span = a.span(rows.clone());
        if rows.len() == 1 && span.len() > SLICE_ENTRIES {
            entry_ends.extend(parts(span.clone()).map(|part| part.end));
            pieces.extend(parts(span).map(|part| (s, Some(part))));
        } else {
            entry_ends.push(span.end);
            pieces.push((s, None));
        }
    }
    let mut outs: Vec<Option<Out<'_, T>>> = out.split(&row_ends).into_iter().map(Some).collect();
    let mut tasks = Vec::new();
    for ((s, entries), own) in pieces.iter().zip(own.split(&entry_ends)) {
        let row = outs[*s].as_ref().filter(|_| entries.is_some() && pass.finds_rows());
        let before = row.map_or(Vec::new(), |out| out.features[0].as_mat().row(0).to_vec());
        let out = if entries.is_none() { outs[*s].take() } else { None };
        let rows = slices[*s].clone();
        tasks.push(Task { pass, rows, entries: entries.clone(), parts: &[], out, before, own });
    }
    let done = threads.map_with(tasks, || pass.work(), |work, task| task.run(isa, work));
    let mut totals = vec![[T::Sum::ZERO; LANES]; pass.sizes().totals];
    done.iter().for_each(|done| add(&mut totals, &done.totals));
    merge(isa, pass, (&slices, outs), (&pieces, &done), &mut totals);
    totals
}

/// Puts the parts of long rows together.
fn merge<'a, T: Stored, P: Pass<T>>(
    isa: Isa,
    pass: &P,
    (slices, outs): (&[Range<usize>], Vec<Option<Out<'a, T>>>),
    (pieces, done): (&[Piece], &[Done<T::Sum>]),
    totals: &mut [Vector<T>],
) {
    let mut work = None;
    for (s, out) in outs.into_iter().enumerate().filter(|(_, out)| out.is_some()) {
        let start = pieces.partition_point(|(slice, _)| *slice < s);
        let end = pieces.partition_point(|(slice, _)| *slice <= s);
        let (rows, parts, entries) = (slices[s].clone(), &done[start..end], Some(0..0));
        let (before, own) = (Vec::new(), PerEntry::none(0));
        let task = Task { pass, rows, entries, parts, out, before, own };
        let done = task.run(isa, work.get_or_insert_with(|| pass.work()));
        add(totals, &done.totals);
    }
}

impl<P: Pass<T>, T: Stored> Task<'_, P, T> {
    fn run(self, isa: Isa, work: &mut P::Work) -> Done<T::Sum> {
        compiled::<T, P>(isa, (self, work))
    }
}

per_isa!(fn compiled<[T: Stored, P: Pass<T>], []>(
    task: (Task<'_, P, T>, &mut P::Work)) -> Done<T::Sum> = body);

#[inline(always)]
fn body<M: Arith, T: Stored, P: Pass<T>>(
    (task, work): (Task<'_, P, T>, &mut P::Work),
) -> Done<T::Sum> {
    let Task { pass, rows, entries, parts, mut out, before, mut own } = task;
    let (sizes, a, first) = (pass.sizes(), pass.adjacency(), rows.start);
    let mut done = Done {
        sums: vec![[T::Sum::ZERO; LANES]; sizes.sums],
        totals: vec![[T::Sum::ZERO; LANES]; sizes.totals],
    };
    let of_nothing = pass.of_nothing();
    let mut next = rows.start;
    while next < rows.end {
        if let (None, Some(out)) = (&entries, &mut out) {
            next = pass.blocks(work, next..rows.end, (out, first), &mut done.totals);
            if next == rows.end {
                break;
            }
        }
        let i = next;
        next += 1;
        if let (true, Some(stats), Some(out)) = (a.row(i).is_empty(), of_nothing, &mut out) {
            out.row(i - first).clear(stats);
            continue;
        }
        if pass.finds_rows() {
            match &mut out {
                Some(out) => pass.find(work, out.row(i - first).features[0]),
                None => pass.find(work, &before),
            }
        }
        pass.begin::<M>(work, i, &mut done.sums);
        let entries = match &entries {
            _ if !pass.reads_entries() => 0..0,
            Some(entries) => entries.clone(),
            None => a.row(i),
        };
        let mut e = entries.start;
        while e < entries.end {
            let end = entries.end.min(e + sizes.chunk);
            pass.entries::<M>(work, e..end, &mut done.sums, &mut own);
            e = end;
        }
        for part in parts {
            pass.merge::<M>(&mut done.sums, &part.sums);
        }
        if let Some(out) = &mut out {
            let sums = Sums { row: &mut done.sums, totals: &mut done.totals };
            pass.finish::<M>(work, i, sums, out.row(i - first));
        }
    }
    done
}

/// `sums + more`.
#[inline(always)]
pub(super) fn add<F: Real>(sums: &mut [Lanes<F>], more: &[Lanes<F>]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum = lanes::add(sum, more);
    }
}
