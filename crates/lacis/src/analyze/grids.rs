//! The 1-D to 3-D distributions of CAGNET (Tripathy, Yelick and Buluç, 2020): who holds which
//! blocks of `A` and `H`, and what a product sends.
//!
//! ```text
//! 1d    rows of A and H; forward the rows of H that entries name, back partial sums of all rows
//! 1.5d  P/c rows of blocks, c copies of each: a copy's share of H is broadcast, results added up
//! 2d    √P × √P blocks: of A along rows, of H along columns
//! 3d    ∛P layers of such squares, whose results are added up over the layers
//! ```

use super::kinds::{Verdict, hashed_halo};
use super::sent::{Sent, all_gather, all_reduce, broadcast, reduce_scatter};
use super::{F32, View, Wires};

/// How a matrix is dealt out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Grid {
    /// Rows.
    One,
    /// Rows, each held by so many workers.
    OneAndAHalf(usize),
    /// Squares.
    Two,
    /// Squares in layers.
    Three,
}

/// A product with the adjacency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Product {
    /// Rows of the dense matrix.
    pub rows: f64,
    /// Its columns.
    pub columns: f64,
    /// Words of the adjacency's entries.
    pub entries: f64,
    /// Rows that entries of other workers' rows name, where rows are dealt out.
    pub halo: f64,
    /// Whether it is the gradient's.
    pub transposed: bool,
}

impl Grid {
    /// The most of some workers that make such a grid, and workers along one of its sides.
    pub fn fitted(self, most: usize) -> [usize; 2] {
        let most = most.max(1);
        let root = |power: u32| (1..).take_while(|q: &usize| q.pow(power) <= most).last();
        match self {
            Grid::One => [most, most],
            Grid::OneAndAHalf(copies) => {
                let all = most / (copies * copies) * copies * copies;
                [all, all / copies]
            }
            Grid::Two => root(2).map_or([1, 1], |q| [q * q, q]),
            Grid::Three => root(3).map_or([1, 1], |q| [q * q * q, q]),
        }
    }

    /// What a product with the adjacency sends.
    pub fn product(self, of: &Product, workers: usize) -> Sent {
        let [workers, side] = self.fitted(workers);
        let dense = of.rows * of.columns;
        // `g` groups put parts of `words` together, each its share.
        let along =
            |words: f64, groups: usize| all_gather(words / groups as f64, side).in_groups(groups);
        match self {
            Grid::One if of.transposed => reduce_scatter(dense, workers),
            Grid::One => {
                let p = workers as f64;
                let asked = (p - 1.0).min(of.halo / p);
                Sent { words: of.halo * of.columns, messages: p * asked, chain: asked }
            }
            Grid::OneAndAHalf(copies) => {
                // One after another in each copy, all copies at once.
                let rounds = (side / copies) as f64;
                let block = broadcast(dense / side as f64, side);
                let shares = Sent {
                    words: side as f64 * block.words,
                    messages: side as f64 * block.messages,
                    chain: rounds * block.chain,
                };
                shares.and(all_reduce(dense / side as f64, copies).in_groups(side))
            }
            Grid::Two => along(of.entries, side).and(along(dense, side)),
            Grid::Three => {
                let groups = side * side;
                along(of.entries, groups).and(along(dense, groups)).and(along(dense, groups))
            }
        }
    }

    /// What a product with weights sends, of so many columns: partial sums along rows of blocks.
    pub fn weights(self, rows: f64, columns: f64, workers: usize) -> Sent {
        let [all, side] = self.fitted(workers);
        match self {
            Grid::One | Grid::OneAndAHalf(_) => Sent::default(),
            Grid::Two | Grid::Three => {
                let groups = all / side;
                reduce_scatter(rows * columns / groups as f64, side).in_groups(groups)
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Grid::One => "1d",
            Grid::OneAndAHalf(_) => "1.5d",
            Grid::Two => "2d",
            Grid::Three => "3d",
        }
    }

    /// How often a row of `H` is held.
    fn copies(self) -> f64 {
        match self {
            Grid::OneAndAHalf(copies) => copies as f64,
            _ => 1.0,
        }
    }
}

/// The 1.5-D distribution with as many copies as are fastest.
pub(super) fn replicated(view: &View<'_>, wires: &Wires) -> Option<Verdict> {
    let copies = (0..).map(|power| 1 << power);
    let copies = copies.take_while(|copies: &usize| copies * copies <= wires.workers.max(1));
    let each = copies.map(|copies| {
        let verdict = distributed(view, wires, Grid::OneAndAHalf(copies));
        let note = format!("{}; rows held {copies} times", verdict.note);
        Verdict { note, ..verdict }
    });
    each.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

/// An epoch of a distribution.
pub(super) fn distributed(view: &View<'_>, wires: &Wires, grid: Grid) -> Verdict {
    let graph = view.graph();
    let [workers, _] = grid.fitted(wires.workers);
    let rows = graph.n_nodes() as f64;
    // An entry is the number of its column, and a weight where there are weights.
    let words = if graph.adjacency().values().is_some() { 2.0 } else { 1.0 };
    let halo = match grid {
        Grid::One => hashed_halo(&graph.adjacency().col_lengths(), workers),
        _ => 0.0,
    };
    let exchanges = view.exchanges();
    let widths = view.column_sums();
    let products = exchanges.iter().map(|exchange| {
        let entries = words * graph.n_edges() as f64;
        let (columns, transposed) = (exchange.width as f64, exchange.transposed);
        grid.product(&Product { rows, columns, entries, halo, transposed }, workers)
    });
    let dense = widths.iter().map(|&width| grid.weights(rows, width as f64, workers));
    let gradients = all_reduce(view.param_bytes() / F32, workers);
    let sent = products.chain(dense).fold(gradients, Sent::and);
    let p = workers as f64;
    let waits = exchanges.len() + 1 + if sent_by_weights(grid) { widths.len() } else { 0 };
    Verdict {
        kind: grid.name(),
        workers,
        volume_bytes: sent.words * F32,
        messages: sent.messages,
        syncs: if workers > 1 { waits } else { 0 },
        balance: 1.0,
        memory_bytes: (view.node_bytes() + graph.adjacency().bytes() as f64) / p * grid.copies(),
        seconds: view.seconds / p + sent.seconds(workers, [wires.alpha, wires.beta]),
        note: "blocks of equal size, nodes in random order".to_owned(),
    }
}

fn sent_by_weights(grid: Grid) -> bool {
    matches!(grid, Grid::Two | Grid::Three)
}

#[cfg(test)]
mod tests;
