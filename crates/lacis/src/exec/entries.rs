//! What happens to entries of sparse matrices: mostly once per graph.

use std::ops::Range;

use lacis_core::threads::split_at_ends;
use lacis_core::{Buffer, Csr, CsrParts, CsrView, Result, Rng, RowPtr, Threads};
use lacis_kernels::dropout::Dropout;
use lacis_plan::plan::{Operator, Place, Step};

use super::{Context, Executor, purpose, wrong};
use crate::params::Params;

impl Executor {
    pub(super) fn entries(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        if let Operator::PlusIdentity { c } = step.operator {
            return self.plus_identity(step, c.get() as f32, context);
        }
        let mut out = self.taken(step, 0, context)?;
        match step.operator {
            Operator::DiagonalProduct => {
                let d = self.vector(step.inputs[0], context, params)?;
                let e = self.vector(step.inputs[1], context, params)?;
                let pairs = d.iter().zip(e);
                out.slice::<f32>().iter_mut().zip(pairs).for_each(|(out, (d, e))| *out = d * e);
            }
            Operator::EntryScale { left, right } => {
                let (a, values) = self.sparse(step.inputs[0], context)?;
                let mut rest = step.inputs[1..].iter();
                let mut next = |there: bool| {
                    let value = there.then(|| rest.next().copied()).flatten();
                    value.map(|value| self.vector(value, context, params)).transpose()
                };
                let (left, right) = (next(left)?, next(right)?);
                let values = values.or(a.values);
                fill(a, out.slice::<f32>(), &self.threads, |i, e| {
                    let l = left.map_or(1.0, |left| left[i]);
                    let r = right.map_or(1.0, |right| right[a.cols[e] as usize]);
                    l * values.map_or(1.0, |values| values[e]) * r
                });
            }
            Operator::EntryDropout { p, key } => {
                let (x, values) = self.sparse(step.inputs[0], context)?;
                let values = values.or(x.values);
                let rng = Rng::new(context.seed, &purpose(key));
                let dropout = Dropout::new(rng, if context.training { p.get() } else { 0.0 })?;
                let (scale, order) = (dropout.scale() as f32, context.levels.order());
                fill(x, out.slice::<f32>(), &self.threads, |i, e| {
                    let row = order.map_or(i as u32, |order| order[i]);
                    let value = values.map_or(1.0, |values| values[e]);
                    let kept = dropout.keeps_all() || dropout.keeps(row, x.cols[e] as usize);
                    if kept { value * scale } else { 0.0 }
                });
            }
            _ => return Err(wrong(step)),
        }
        self.put(out);
        Ok(())
    }

    /// `a + c·I`, entries in ascending columns where they were.
    fn plus_identity(&mut self, step: &Step, c: f32, context: &Context<'_>) -> Result<()> {
        let (a, values) = self.sparse(step.inputs[0], context)?;
        let values = values.or(a.values);
        let matrix = plus_identity(a, values, c, &self.threads)?;
        let Place::Matrix(index) = self.plan.values[step.outputs[0]].place else {
            return Err(wrong(step));
        };
        self.matrices[index] = Some(matrix);
        Ok(())
    }
}

/// Entries of a piece of work, at least; a matrix has a few dozen pieces.
const PIECE: usize = 1 << 13;

/// Rows with about as many entries each.
fn pieces(a: CsrView<'_>) -> Vec<Range<usize>> {
    a.slices(PIECE.max(a.cols.len() / 64))
}

/// `out[e] = f(i, e)` for every entry `e` of every row `i`.
fn fill(
    a: CsrView<'_>,
    out: &mut [f32],
    threads: &Threads,
    f: impl Fn(usize, usize) -> f32 + Sync,
) {
    let pieces = pieces(a);
    let ends: Vec<usize> = pieces.iter().map(|rows| a.row_ptr.at(rows.end)).collect();
    let parts = pieces.into_iter().zip(split_at_ends(out, &ends)).collect();
    threads.for_each(parts, |(rows, out)| {
        let first = a.row_ptr.at(rows.start);
        for i in rows {
            a.row(i).for_each(|e| out[e - first] = f(i, e));
        }
    });
}

/// `a + c·I`, entries in ascending columns where they were: row `i` has one more entry, and so has
/// every row before it, as long as there are columns.
fn plus_identity(a: CsrView<'_>, values: Option<&[f32]>, c: f32, threads: &Threads) -> Result<Csr> {
    let start = |i: usize| a.row_ptr.at(i) + i.min(a.n_cols);
    let (n_rows, nnz) = (a.n_rows(), start(a.n_rows()));
    let pieces = pieces(a);
    let ends: Vec<usize> = pieces.iter().map(|rows| start(rows.end)).collect();
    // Where all are ones, none is written down.
    let units = values.is_none() && c == 1.0;
    let mut cols = Buffer::<u32>::try_zeroed(nnz)?;
    let mut sums = Buffer::<f32>::try_zeroed(if units { 0 } else { nnz })?;
    let ends_of_sums = if units { vec![0; ends.len()] } else { ends.clone() };
    let targets = split_at_ends(cols.make_mut(), &ends)
        .into_iter()
        .zip(split_at_ends(sums.make_mut(), &ends_of_sums));
    threads.for_each(pieces.into_iter().zip(targets).collect(), |(rows, (cols, sums))| {
        let first = start(rows.start);
        for i in rows {
            let (entries, to) = (a.row(i), start(i) - first);
            let own = &a.cols[entries.clone()];
            let before = own.iter().position(|&j| j as usize >= i).unwrap_or(own.len());
            let inserts = i < a.n_cols;
            let after = to + before + usize::from(inserts);
            cols[to..to + before].copy_from_slice(&own[..before]);
            cols[after..after + own.len() - before].copy_from_slice(&own[before..]);
            if inserts {
                cols[to + before] = i as u32;
            }
            if !units {
                let value = |e: usize| values.map_or(1.0, |values| values[entries.start + e]);
                (0..before).for_each(|e| sums[to + e] = value(e));
                (before..own.len()).for_each(|e| sums[after + e - before] = value(e));
                if inserts {
                    sums[to + before] = c;
                }
            }
        }
    });
    let ptr: Vec<u64> = (0..=n_rows).map(|i| start(i) as u64).collect();
    let parts = CsrParts {
        n_cols: a.n_cols,
        row_ptr: RowPtr::Wide(ptr.into()),
        cols,
        values: (!units).then_some(sums),
        order: None,
    };
    Ok(Csr::new(parts, threads)?.without_unit_values())
}

#[cfg(test)]
mod tests {
    use lacis_core::{Coo, Extent, Repeats};

    use super::*;

    /// Some entries, loops and repeats among them, of a matrix of so many rows and columns.
    fn matrix([n_rows, n_cols]: [usize; 2], entries: usize, valued: bool) -> Csr {
        let rng = Rng::new(7, "entries");
        let place = |e: usize, n: usize, word: usize| rng.block(e as u64)[word] % n.max(1) as u32;
        let rows: Vec<u32> = (0..entries).map(|e| place(e, n_rows, 0)).collect();
        let cols: Vec<u32> = (0..entries).map(|e| place(e, n_cols, 1)).collect();
        let values: Vec<f32> = (0..entries).map(|e| e as f32 / 8.0).collect();
        let threads = Threads::one();
        let values = valued.then_some(&values[..]);
        let coo = Coo::from_slices(&rows, &cols, values, &threads).unwrap();
        let extent = Extent { n_rows: Some(n_rows), n_cols: Some(n_cols) };
        coo.into_csr(extent, Repeats::Keep, &threads).unwrap()
    }

    #[test]
    fn the_identity_is_added_to_any_shape_with_any_number_of_threads() {
        let shapes = [[300, 300], [300, 40], [40, 300], [1, 1], [0, 0], [3, 0]];
        for (shape, valued) in shapes.into_iter().flat_map(|s| [(s, false), (s, true)]) {
            let entries = if shape.contains(&0) { 0 } else { 30_000 };
            let a = matrix(shape, entries, valued);
            for (c, count) in [(1.0, 1), (1.0, 7), (0.5, 2)] {
                let threads = Threads::new(count).unwrap();
                let sum = plus_identity(a.view(), a.values(), c, &threads).unwrap();
                let diagonal = (0..shape[0].min(shape[1])).map(|i| (i, i, c));
                let mut expected: Vec<_> = a.entries().chain(diagonal).collect();
                let mut found: Vec<_> = sum.entries().collect();
                let key = |e: &(usize, usize, f32)| (e.0, e.1, e.2.to_bits());
                assert!(found.is_sorted_by_key(|e| (e.0, e.1)), "{shape:?}");
                expected.sort_by_key(key);
                found.sort_by_key(key);
                assert_eq!(found, expected, "{shape:?}, {c}, {count} threads");
                let units = sum.nnz() == 0 || !valued && c == 1.0;
                assert_eq!(sum.values().is_none(), units, "{shape:?}, {c}");
            }
        }
    }

    #[test]
    fn every_entry_is_filled() {
        let a = matrix([500, 70], 40_000, false);
        for count in [1, 2, 7] {
            let mut out = vec![-1.0; a.nnz()];
            // Whole numbers that f32 tells apart.
            let number = |i: usize, e: usize| (i * 4096 + e % 4096) as f32;
            fill(a.view(), &mut out, &Threads::new(count).unwrap(), number);
            let expected = (0..a.n_rows()).flat_map(|i| a.view().row(i).map(move |e| (i, e)));
            assert!(out.iter().zip(expected).all(|(x, (i, e))| *x == number(i, e)));
        }
    }
}
