//! A draw that never takes more entries than there is room for, and gives every pair its chance.
//!
//! Dropping what does not fit would bias the estimate: in a star the hub's pair is half of all
//! entries, and would never be there. So a pair that is heavy for the room is cut into bands of
//! rows, which are drawn on their own. Pieces keep their pair's probability: a piece of a share `q`
//! of a pair has about `√q` of its score and `q` of its work, which is the same `s/√c`; so neither
//! `λ` nor the error to expect changes.
//!
//! Work is counted in whole entries. While pieces of at most `c` of them are undecided, what is
//! decided is less than what was planned; with `room - (c - 1)` planned that is at most `room - c`,
//! and the last piece fits, whichever it is.

use lacis_core::{Rng, Threads};
use lacis_kernels::sampled::{Bands, Diagonal, Scaled, band_entries};

use super::draw::{Histogram, balanced, largest_open, probabilities};

/// A pair that is drawn has at most this share of the room, or is cut.
const PIECE: f64 = 1.0 / 16.0;
/// Times that the largest undecided piece is looked for before the largest possible one is assumed.
const LOOKS: usize = 4;
/// What sums of probabilities may be rounded by.
const ROUNDING: f64 = 1e-6;
/// Pieces of all pairs that are cut, at most.
const MOST_PIECES: usize = 1 << 22;

/// What there is to draw from.
#[derive(Clone, Copy)]
pub struct Pairs<'a> {
    /// Score of each pair.
    pub scores: &'a [f32],
    /// Entries of each pair.
    pub work: &'a [u32],
    /// Both by what they are worth.
    pub histogram: &'a Histogram,
}

/// Which pairs are taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Taken {
    /// A factor per pair: 0 where it is left out, negative where it is taken in some bands only.
    pub factors: Vec<f32>,
    /// Those bands.
    pub bands: Option<Bands>,
}

impl From<Vec<f32>> for Taken {
    /// Whole pairs.
    fn from(factors: Vec<f32>) -> Self {
        Taken { factors, bands: None }
    }
}

/// Draws pairs of at most `room` entries; `None` where no draw that fits is without bias.
pub fn draw(
    pairs: &Pairs<'_>,
    room: f64,
    (of, diagonal): (&Scaled<'_>, Diagonal),
    (rng, threads): (&Rng, &Threads),
) -> Option<Taken> {
    let Pairs { scores, work, histogram } = *pairs;
    if histogram.work() <= room {
        let all = scores.iter().map(|&score| if score > 0.0 { 1.0 } else { 0.0 });
        return Some(all.collect::<Vec<f32>>().into());
    }
    if room < 1.0 {
        return None;
    }
    let limit = (PIECE * room).max(1.0) as u32;
    let mut chances = probabilities(scores, work, lambda(pairs, (room.floor(), limit)));
    let heavy = |j: &u32| {
        let j = *j as usize;
        chances[j] > 0.0 && chances[j] < 1.0 && work[j] > limit
    };
    let columns: Vec<u32> = (0..scores.len() as u32).filter(heavy).collect();
    if columns.is_empty() {
        return Some(balanced(&chances, work, rng, threads).into());
    }
    let (rows, counts) = cut((of, diagonal), &columns, limit, threads)?;
    // Pieces are pairs of their own, after all others.
    let own: Vec<f64> = columns.iter().map(|&j| chances[j as usize]).collect();
    columns.iter().for_each(|&j| chances[j as usize] = 0.0);
    for band in counts.chunks(columns.len()) {
        let chance = |(&count, &own): (&u32, &f64)| if count > 0 { own } else { 0.0 };
        chances.extend(band.iter().zip(&own).map(chance));
    }
    let work = [work, &counts[..]].concat();
    let mut factors = balanced(&chances, &work, rng, threads);
    let pieces = factors.split_off(scores.len());
    let mut taken = Vec::new();
    for (at, _) in pieces.iter().enumerate().filter(|(_, factor)| **factor > 0.0) {
        let (band, column) = (at / columns.len(), at % columns.len());
        factors[columns[column] as usize] = -(1.0 / own[column]) as f32;
        taken.push([columns[column], band as u32]);
    }
    taken.sort_unstable();
    Some(Taken { factors, bands: Some(Bands { rows, taken }) })
}

/// The largest `λ` with which the last piece fits.
fn lambda(pairs: &Pairs<'_>, (room, limit): (f64, u32)) -> f64 {
    let of =
        |free: u32| pairs.histogram.lambda_of_work((room - f64::from(free)) * (1.0 - ROUNDING));
    // The less is certain, the larger the pieces that are not.
    let mut free = 0;
    for _ in 0..LOOKS {
        let lambda = of(free);
        let needs = largest_open(pairs.scores, pairs.work, lambda).min(limit).saturating_sub(1);
        if needs <= free {
            return lambda;
        }
        free = needs;
    }
    of(limit - 1)
}

/// Rows of a band such that no piece has more than `limit` entries, and the entries of all pieces.
/// A row may name a column more than once; so many rows may be too many.
fn cut(
    (of, diagonal): (&Scaled<'_>, Diagonal),
    columns: &[u32],
    limit: u32,
    threads: &Threads,
) -> Option<(usize, Vec<u32>)> {
    let mut rows = limit as usize;
    while of.a.n_rows().div_ceil(rows) * columns.len() <= MOST_PIECES {
        let counts = band_entries(of, (columns, rows), diagonal, threads);
        if counts.iter().all(|&count| count <= limit) {
            return Some((rows, counts));
        }
        if rows == 1 {
            return None;
        }
        rows /= 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use lacis_core::{Coo, Csr, Extent, Repeats};
    use lacis_kernels::sampled::{columns, sliced_in_bands};

    use super::*;

    /// Two hubs that point to everybody, and a ring of light pairs.
    fn hubs(n: u32, repeats: u32) -> Csr {
        let mut entries: Vec<(u32, u32)> = (0..n).map(|i| (i, 2 + (i + 1) % (n - 2))).collect();
        for _ in 0..repeats {
            entries.extend((0..n).flat_map(|i| [(i, 0), (i, 1)]));
        }
        let (rows, cols): (Vec<u32>, Vec<u32>) = entries.into_iter().unzip();
        let threads = Threads::one();
        let coo = Coo::from_slices(&rows, &cols, None, &threads).unwrap();
        let extent = Extent { n_rows: Some(n as usize), n_cols: Some(n as usize) };
        coo.into_csr(extent, Repeats::Keep, &threads).unwrap()
    }

    #[test]
    fn heavy_pairs_are_there_as_often_as_their_chance_and_the_room_is_kept() {
        let threads = Threads::one();
        for (repeats, diagonal, room) in [
            (1, Diagonal::Sampled, 12.0),
            (1, Diagonal::Exact, 40.0),
            (3, Diagonal::Sampled, 60.0),
            (1, Diagonal::Sampled, 1.0),
        ] {
            let a = hubs(60, repeats);
            let of = Scaled { a: a.view(), values: None, left: None, right: None };
            let found = columns(&of, diagonal == Diagonal::Exact, &threads);
            let certain = if diagonal == Diagonal::Exact { found.diagonal } else { 0 };
            let (scores, work) = (&found.norms, &found.entries);
            let histogram = Histogram::of(scores, work);
            let pairs = Pairs { scores, work, histogram: &histogram };
            let rounds = 4000;
            let mut mean = vec![0.0; a.n_rows() * a.n_cols()];
            for round in 0..rounds {
                let by = (&Rng::new(round, "draw"), &threads);
                let taken = draw(&pairs, room, (&of, diagonal), by).unwrap();
                let choice = (&taken.factors[..], taken.bands.as_ref());
                let small = sliced_in_bands(&of, choice, diagonal, &threads).unwrap();
                assert!(small.nnz() <= room as usize + certain, "{} for {room}", small.nnz());
                for i in 0..a.n_rows() {
                    for e in small.row(i) {
                        let at = i * a.n_cols() + small.cols()[e] as usize;
                        mean[at] += f64::from(small.values().unwrap()[e]) / rounds as f64;
                    }
                }
            }
            let chances = probabilities(scores, work, lambda(&pairs, (room, limit_of(room))));
            for i in 0..a.n_rows() {
                for &j in a.row_cols(i) {
                    let times = a.row_cols(i).iter().filter(|&&other| other == j).count() as f64;
                    let spread = ((1.0 / chances[j as usize] - 1.0) / rounds as f64).sqrt();
                    let found = mean[i * a.n_cols() + j as usize] / times;
                    let own = diagonal == Diagonal::Exact && i == j as usize;
                    let allowed = if own { 1e-6 } else { 5.0 * spread + 1e-6 };
                    assert!((found - 1.0).abs() < allowed, "{i}, {j}: {found} ± {spread}");
                }
            }
        }
    }

    fn limit_of(room: f64) -> u32 {
        (PIECE * room).max(1.0) as u32
    }

    #[test]
    fn without_room_nothing_is_drawn() {
        let (a, threads) = (hubs(20, 1), Threads::one());
        let of = Scaled { a: a.view(), values: None, left: None, right: None };
        let found = columns(&of, false, &threads);
        let histogram = Histogram::of(&found.norms, &found.entries);
        let pairs = Pairs { scores: &found.norms, work: &found.entries, histogram: &histogram };
        let with = |room: f64| {
            draw(&pairs, room, (&of, Diagonal::Sampled), (&Rng::new(1, "draw"), &threads))
        };
        assert!(with(0.9).is_none() && with(1e9).is_some_and(|all| all.bands.is_none()));
    }
}
