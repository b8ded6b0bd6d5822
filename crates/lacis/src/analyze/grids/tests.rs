//! Every exchange carried out by workers with memories of their own, words and messages counted.

use lacis_core::{Csr, CsrParts, Rng, Threads};

use super::*;
use crate::partition::Parts;

/// What has crossed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Wire {
    words: usize,
    messages: usize,
}

impl Wire {
    fn send(&mut self, words: usize) {
        self.words += words;
        self.messages += 1;
    }

    fn assert_is(self, sent: Sent, what: &str) {
        assert_eq!(
            (self.words as f64, self.messages as f64),
            (sent.words, sent.messages),
            "{what}"
        );
    }
}

/// How many parts a worker has at the beginning of each round, until it has all.
fn rounds(workers: usize) -> Vec<usize> {
    (0..).map(|round| 1 << round).take_while(|have| *have < workers).collect()
}

/// Every worker gets every worker's part.
fn gathered(parts: &[Vec<f64>], wire: &mut Wire) -> Vec<Vec<Vec<f64>>> {
    let workers = parts.len();
    // From its own part on, and round again.
    let mut held: Vec<Vec<Vec<f64>>> = parts.iter().map(|part| vec![part.clone()]).collect();
    for have in rounds(workers) {
        let before = held.clone();
        for (worker, held) in held.iter_mut().enumerate() {
            let sent = &before[(worker + have) % workers][..have.min(workers - have)];
            wire.send(sent.iter().map(Vec::len).sum());
            held.extend_from_slice(sent);
        }
    }
    held.iter_mut().enumerate().for_each(|(worker, held)| held.rotate_right(worker));
    held
}

/// Every worker gets its part of the sum of what all have.
fn scattered(all: &[Vec<Vec<f64>>], wire: &mut Wire) -> Vec<Vec<f64>> {
    let workers = all.len();
    let mut held = all.to_vec();
    held.iter_mut().enumerate().for_each(|(worker, held)| held.rotate_left(worker));
    for have in rounds(workers).into_iter().rev() {
        let sent: Vec<Vec<Vec<f64>>> = held.iter_mut().map(|held| held.split_off(have)).collect();
        for (worker, sent) in sent.into_iter().enumerate() {
            wire.send(sent.iter().map(Vec::len).sum());
            let to = &mut held[(worker + have) % workers];
            to.iter_mut().zip(&sent).for_each(|(to, sent)| add(to, sent));
        }
    }
    held.into_iter().map(|mut held| held.swap_remove(0)).collect()
}

/// Every worker gets the sum of what all have.
fn reduced(all: &[Vec<f64>], wire: &mut Wire) -> Vec<Vec<f64>> {
    let workers = all.len();
    let cut_up = |whole: &Vec<f64>| -> Vec<Vec<f64>> {
        (0..workers).map(|part| whole[cut(whole.len(), workers, part)].to_vec()).collect()
    };
    let parts = scattered(&all.iter().map(cut_up).collect::<Vec<_>>(), wire);
    gathered(&parts, wire).into_iter().map(|held| held.concat()).collect()
}

/// Every worker gets what one has: who has it passes it on.
fn told(part: &[f64], workers: usize, wire: &mut Wire) -> Vec<Vec<f64>> {
    let mut held = vec![part.to_vec()];
    while held.len() < workers {
        for from in 0..held.len().min(workers - held.len()) {
            wire.send(held[from].len());
            held.push(held[from].clone());
        }
    }
    held
}

fn add(to: &mut [f64], other: &[f64]) {
    to.iter_mut().zip(other).for_each(|(to, other)| *to += other);
}

fn cut(n: usize, parts: usize, part: usize) -> std::ops::Range<usize> {
    n * part / parts..n * (part + 1) / parts
}

/// Entries, in no order, and a dense matrix of whole numbers.
struct Problem {
    n: usize,
    f: usize,
    entries: Vec<[usize; 2]>,
    h: Vec<f64>,
}

impl Problem {
    fn new(n: usize, f: usize) -> Self {
        let rng = Rng::new(5, "entries");
        let of = |e: usize, word: usize| rng.block(e as u64)[word] as usize % n;
        let entries = (0..6 * n).map(|e| [of(e, 0), of(e, 1)]).collect();
        Problem { n, f, entries, h: (0..n * f).map(|i| (i % 17) as f64).collect() }
    }

    fn product(&self) -> Product {
        let [rows, columns, entries] = [self.n, self.f, self.entries.len()].map(|x| x as f64);
        Product { rows, columns, entries, halo: 0.0, transposed: false }
    }

    /// `A·H`, or `Aᵀ·H`.
    fn direct(&self, transposed: bool) -> Vec<f64> {
        let mut y = vec![0.0; self.n * self.f];
        for &[i, j] in &self.entries {
            let [i, j] = if transposed { [j, i] } else { [i, j] };
            (0..self.f).for_each(|c| y[i * self.f + c] += self.h[j * self.f + c]);
        }
        y
    }

    /// Entries of a block, each a word.
    fn block(&self, rows: std::ops::Range<usize>, cols: std::ops::Range<usize>) -> Vec<f64> {
        let inside = |e: &&[usize; 2]| rows.contains(&e[0]) && cols.contains(&e[1]);
        self.entries.iter().filter(inside).map(|[i, j]| (i * self.n + j) as f64).collect()
    }

    fn dense(&self, rows: std::ops::Range<usize>, cols: std::ops::Range<usize>) -> Vec<f64> {
        rows.flat_map(|i| cols.clone().map(move |c| self.h[i * self.f + c])).collect()
    }

    /// A block of entries times the rows of `H` from `first` on, some columns wide.
    fn multiply(&self, [a, h]: [&[f64]; 2], [top, first]: [usize; 2], y: &mut [f64], width: usize) {
        for word in a.iter().map(|&word| word as usize) {
            let (i, j) = (word / self.n - top, word % self.n - first);
            let h = &h[j * width..(j + 1) * width];
            add(&mut y[i * width..(i + 1) * width], h);
        }
    }
}

/// A block of rows and columns into the whole.
fn place(
    y: &mut [f64],
    f: usize,
    (rows, cols): (std::ops::Range<usize>, std::ops::Range<usize>),
    block: &[f64],
) {
    for (at, i) in rows.enumerate() {
        let own = &block[at * cols.len()..(at + 1) * cols.len()];
        y[i * f + cols.start..i * f + cols.end].copy_from_slice(own);
    }
}

#[test]
fn collectives_send_what_their_formulas_say() {
    for workers in 1..=9 {
        let all: Vec<Vec<f64>> =
            (0..workers).map(|w| (0..29).map(|i| (w * 29 + i) as f64).collect()).collect();
        let sum = all.iter().fold(vec![0.0; 29], |mut sum, own| {
            add(&mut sum, own);
            sum
        });
        let mut wire = Wire::default();
        // Mini-batches, dependent or not, add their gradients up.
        assert!(reduced(&all, &mut wire).iter().all(|found| *found == sum));
        wire.assert_is(all_reduce(29.0, workers), "all-reduce");
        let mut wire = Wire::default();
        assert!(told(&all[0], workers, &mut wire).iter().all(|found| *found == all[0]));
        wire.assert_is(broadcast(29.0, workers), "broadcast");
    }
    let nothing = Sent::default();
    assert_eq!([all_gather(9.0, 1), reduce_scatter(9.0, 1), broadcast(9.0, 1)], [nothing; 3]);
}

/// Columns of `X` and rows of `W` on every worker; back, columns of the gradient gathered.
#[test]
fn shared_columns_are_added_up_and_gathered() {
    let (of, outputs) = (Problem::new(11, 12), 7);
    let w = |k: usize, c: usize| (k * outputs + c) as f64;
    for workers in [1, 2, 3, 6] {
        let mut wire = Wire::default();
        let partial = |worker: usize| -> Vec<Vec<f64>> {
            let own = cut(of.f, workers, worker);
            let column =
                |i: usize, c: usize| own.clone().map(|k| of.h[i * of.f + k] * w(k, c)).sum();
            let share = |to: usize| {
                let columns = cut(outputs, workers, to);
                (0..of.n).flat_map(move |i| columns.clone().map(move |c| (i, c)))
            };
            (0..workers).map(|to| share(to).map(|(i, c)| column(i, c)).collect()).collect()
        };
        let found = scattered(&(0..workers).map(partial).collect::<Vec<_>>(), &mut wire);
        for (worker, found) in found.iter().enumerate() {
            let columns = cut(outputs, workers, worker);
            for (at, c) in columns.clone().enumerate() {
                let whole: f64 = (0..of.f).map(|k| of.h[k] * w(k, c)).sum();
                assert_eq!(found[at], whole);
            }
        }
        let words = (of.n * outputs) as f64;
        wire.assert_is(reduce_scatter(words, workers), "forward");
        let mut wire = Wire::default();
        let seen = gathered(&found, &mut wire);
        assert!(seen.iter().all(|seen| *seen == found));
        wire.assert_is(all_gather(words, workers), "back");
    }
}

#[test]
fn rows_send_their_halos_and_add_up_their_gradients() {
    let of = Problem::new(40, 5);
    for workers in [1, 2, 5] {
        let parts = Parts::hashed(of.n, workers);
        let mut known: Vec<Vec<bool>> = vec![vec![false; of.n]; workers];
        let mut pairs = vec![false; workers * workers];
        let mut wire = Wire::default();
        for [i, j] in &of.entries {
            let [to, from] = [*i, *j].map(|node| parts.of()[node] as usize);
            if to != from && !std::mem::replace(&mut known[to][*j], true) {
                wire.words += of.f;
                wire.messages +=
                    usize::from(!std::mem::replace(&mut pairs[to * workers + from], true));
            }
        }
        let halo = parts.halo(&matrix(&of)).total() as f64;
        wire.assert_is(Grid::One.product(&Product { halo, ..of.product() }, workers), "1d");
        // By expectation, as for thousands of workers.
        let expected = hashed_halo(&matrix(&of).col_lengths(), workers);
        assert!((expected - halo).abs() <= 0.1 * halo, "{expected} and {halo}");
        let mut wire = Wire::default();
        let partial = |worker: usize| -> Vec<Vec<f64>> {
            let mut y = vec![0.0; of.n * of.f];
            for &[i, j] in of.entries.iter().filter(|e| parts.of()[e[0]] as usize == worker) {
                add(&mut y[j * of.f..(j + 1) * of.f], &of.h[i * of.f..(i + 1) * of.f]);
            }
            (0..workers).map(|to| y[cut(y.len(), workers, to)].to_vec()).collect()
        };
        let found = scattered(&(0..workers).map(partial).collect::<Vec<_>>(), &mut wire);
        assert_eq!(found.concat(), of.direct(true));
        let back = Product { transposed: true, ..of.product() };
        wire.assert_is(Grid::One.product(&back, workers), "1d, back");
    }
}

fn matrix(of: &Problem) -> Csr {
    let mut rows: Vec<Vec<u32>> = vec![Vec::new(); of.n];
    of.entries.iter().for_each(|[i, j]| rows[*i].push(*j as u32));
    rows.iter_mut().for_each(|row| row.sort_unstable());
    let mut ptr = vec![0_u64];
    rows.iter().for_each(|row| ptr.push(ptr[ptr.len() - 1] + row.len() as u64));
    let parts = CsrParts {
        n_cols: of.n,
        row_ptr: lacis_core::RowPtr::Wide(ptr.into()),
        cols: rows.concat().into(),
        values: None,
        order: None,
    };
    Csr::new(parts, &Threads::one()).expect("entries in order")
}

#[test]
fn copies_broadcast_their_shares_and_add_them_up() {
    let of = Problem::new(25, 4);
    for (workers, copies) in [(1, 1), (3, 1), (4, 2), (8, 2), (16, 4)] {
        let side = workers / copies;
        let mut wire = Wire::default();
        let block = |r: usize| cut(of.n, side, r);
        // What each row of workers has of each share.
        let mut partial: Vec<Vec<Vec<f64>>> =
            (0..side).map(|r| vec![vec![0.0; block(r).len() * of.f]; copies]).collect();
        for j in 0..side {
            let heard = told(&of.dense(block(j), 0..of.f), side, &mut wire);
            for (r, h) in heard.iter().enumerate() {
                let a = of.block(block(r), block(j));
                let from = [block(r).start, block(j).start];
                of.multiply([&a, h], from, &mut partial[r][j % copies], of.f);
            }
        }
        let mut y = Vec::new();
        for shares in &partial {
            let sums = reduced(shares, &mut wire);
            assert!(sums.iter().all(|sum| *sum == sums[0]));
            y.extend_from_slice(&sums[0]);
        }
        assert_eq!(y, of.direct(false));
        let grid = Grid::OneAndAHalf(copies);
        assert_eq!(grid.fitted(workers), [workers, side]);
        wire.assert_is(grid.product(&of.product(), workers), &format!("1.5d, {workers}, {copies}"));
    }
}

/// One layer of a 2-D or 3-D product: rows and columns of blocks, an inner range of their own.
fn layer(
    of: &Problem,
    side: usize,
    inner: std::ops::Range<usize>,
    wire: &mut Wire,
) -> Vec<Vec<f64>> {
    let within = |part: usize| {
        let own = cut(inner.len(), side, part);
        inner.start + own.start..inner.start + own.end
    };
    let mut blocks = Vec::new();
    let along_rows: Vec<Vec<Vec<Vec<f64>>>> = (0..side)
        .map(|i| {
            let own = |j: usize| of.block(cut(of.n, side, i), within(j));
            gathered(&(0..side).map(own).collect::<Vec<_>>(), wire)
        })
        .collect();
    let along_columns: Vec<Vec<Vec<Vec<f64>>>> = (0..side)
        .map(|j| {
            let own = |i: usize| of.dense(within(i), cut(of.f, side, j));
            gathered(&(0..side).map(own).collect::<Vec<_>>(), wire)
        })
        .collect();
    for i in 0..side {
        for j in 0..side {
            let (rows, cols) = (cut(of.n, side, i), cut(of.f, side, j));
            let mut y = vec![0.0; rows.len() * cols.len()];
            let (a, h) = (along_rows[i][j].concat(), along_columns[j][i].concat());
            of.multiply([&a, &h], [rows.start, inner.start], &mut y, cols.len());
            blocks.push(y);
        }
    }
    blocks
}

#[test]
fn squares_gather_along_rows_and_columns() {
    let of = Problem::new(23, 7);
    for side in 1..=4 {
        let mut wire = Wire::default();
        let blocks = layer(&of, side, 0..of.n, &mut wire);
        let mut y = vec![0.0; of.n * of.f];
        for (at, block) in blocks.iter().enumerate() {
            let where_to = (cut(of.n, side, at / side), cut(of.f, side, at % side));
            place(&mut y, of.f, where_to, block);
        }
        assert_eq!(y, of.direct(false));
        // A few more workers make no larger square.
        let workers = side * side + usize::from(side > 1);
        wire.assert_is(Grid::Two.product(&of.product(), workers), "2d");
        let mut wire = Wire::default();
        for i in 0..side {
            let rows = cut(of.n, side, i).len();
            let partial = |_| (0..side).map(|j| vec![1.0; rows * cut(5, side, j).len()]).collect();
            scattered(&(0..side).map(partial).collect::<Vec<_>>(), &mut wire);
        }
        wire.assert_is(Grid::Two.weights(of.n as f64, 5.0, workers), "2d, weights");
    }
}

#[test]
fn layers_of_squares_add_up_their_results() {
    let of = Problem::new(23, 6);
    for side in 1..=3 {
        let mut wire = Wire::default();
        let layers: Vec<Vec<Vec<f64>>> =
            (0..side).map(|l| layer(&of, side, cut(of.n, side, l), &mut wire)).collect();
        let mut y = vec![0.0; of.n * of.f];
        for at in 0..side * side {
            let share = |block: &[f64]| -> Vec<Vec<f64>> {
                (0..side).map(|part| block[cut(block.len(), side, part)].to_vec()).collect()
            };
            let all: Vec<Vec<Vec<f64>>> = layers.iter().map(|blocks| share(&blocks[at])).collect();
            let sum = scattered(&all, &mut wire).concat();
            place(&mut y, of.f, (cut(of.n, side, at / side), cut(of.f, side, at % side)), &sum);
        }
        assert_eq!(y, of.direct(false));
        wire.assert_is(Grid::Three.product(&of.product(), side.pow(3)), "3d");
    }
}

/// What CAGNET publishes of a layer, forward and back, for each worker.
#[test]
fn a_layer_sends_no_more_than_is_published() {
    let [n, f, m] = [1e4, 64.0, 2e5];
    let layer = |grid: Grid, halo: f64, workers: usize| {
        let of = Product { rows: n, columns: f, entries: m, halo, transposed: false };
        let back = Product { transposed: true, ..of };
        let both = grid.product(&of, workers).and(grid.product(&back, workers));
        let dense = grid.weights(n, f, workers);
        both.and(dense).and(dense).and(all_reduce(f * f, workers)).words / workers as f64
    };
    for q in [2_usize, 4, 8] {
        let [square, cube] = [q * q, q * q * q];
        let side = q as f64;
        let cut = m * (1.0 - 1.0 / square as f64);
        let one = cut / square as f64 * f + n * f + 2.0 * f * f;
        assert!(layer(Grid::One, cut, square) <= one);
        let p = square as f64;
        let copied = 2.0 * n * f / 2.0 + 2.0 * n * f * 2.0 / p + 2.0 * f * f;
        assert!(layer(Grid::OneAndAHalf(2), 0.0, square) <= copied);
        let two = (8.0 * n * f + 2.0 * m) / side + 2.0 * f * f;
        assert!(layer(Grid::Two, 0.0, square) <= two);
        let three = (2.0 * m + 12.0 * n * f) / (side * side) + 2.0 * f * f;
        assert!(layer(Grid::Three, 0.0, cube) <= three);
    }
}
