//! Dropout whose mask is a function, not a matrix: `d_ic` is 0 or `1 / share` by row and column.
//! For attention, rows are edges and columns are heads.
//!
//! ```text
//!   block  = Philox(key, row, column / 8)      128 bits: 8 numbers of 16 bits, the lowest first
//!   kept   = number(column mod 8) < share · 65536
//! ```
//! Nobody stores it: the backward computes it again. A row is named by its number in the whole
//! graph, so that sub-graphs and other orders of computation meet the same mask.
//!
//! # Accuracy
//! The share that is kept is `1 - p` to the nearest 1/65536, and kept elements are divided by just
//! that share, so that the expected value is the element.

mod kept;

use lacis_core::error::same_size;
use lacis_core::{Error, Result, Rng};

use crate::lanes::LANES;
use crate::real::Real;
use crate::strips::{STRIP, Strip};

/// Numbers of a block of random bits.
pub(crate) const NUMBERS: usize = 8;
/// The share that keeps everything.
const ALL: u32 = 1 << 16;

/// Which elements of a matrix are dropped.
#[derive(Clone, Copy, Debug)]
pub struct Dropout<'a> {
    rng: Rng,
    kept: u32,
    rows: Option<&'a [u32]>,
}

impl<'a> Dropout<'a> {
    /// Drops each element with probability `p`. A training loop gives each layer its purpose and
    /// each epoch its seed.
    ///
    /// # Errors
    /// When `p` is not from 0 to 1.
    pub fn new(rng: Rng, p: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            let problem = format!("{p} is no probability; 0 to 1 would be right");
            return Err(Error::argument("dropout", problem));
        }
        let kept = ((1.0 - p) * f64::from(ALL)).round() as u32;
        Ok(Dropout { rng, kept, rows: None })
    }

    /// Row `i` of the matrix is row `rows[i]` of the whole graph.
    pub fn at_rows(self, rows: &'a [u32]) -> Self {
        Dropout { rows: Some(rows), ..self }
    }

    /// Whether an element is kept; `row` is its number in the whole graph.
    pub fn keeps(&self, row: u32, column: usize) -> bool {
        let block = self.rng.block_at(u64::from(row), (column / NUMBERS) as u32);
        let word = block[column % NUMBERS / 2];
        word >> (column % 2 * 16) & 0xffff < self.kept
    }

    /// What the element is multiplied by: 0, or [`Dropout::scale`].
    pub fn factor(&self, row: u32, column: usize) -> f64 {
        if self.keeps(row, column) { self.scale() } else { 0.0 }
    }

    /// What kept elements are multiplied by.
    pub fn scale(&self) -> f64 {
        if self.kept == 0 { 0.0 } else { f64::from(ALL) / f64::from(self.kept) }
    }

    /// Whether nothing is dropped.
    pub fn keeps_all(&self) -> bool {
        self.kept == ALL
    }

    /// The number of row `i` in the whole graph.
    #[inline(always)]
    pub(crate) fn name(&self, i: usize) -> u32 {
        self.rows.map_or(i as u32, |rows| rows[i])
    }

    /// The factors of some rows, by their names, for the columns of one block.
    #[inline(always)]
    pub(crate) fn factors<F: Real>(&self, names: &[u32; LANES], block: u32) -> Factors<F> {
        let (kept, scale) = (self.kept, F::of(self.scale()));
        let words = philox(names, &[block; LANES], self.rng);
        let mut factors = [[F::ZERO; NUMBERS]; LANES];
        for (factors, words) in factors.iter_mut().zip(&words) {
            for (pair, word) in factors.as_chunks_mut::<2>().0.iter_mut().zip(words) {
                *pair = [*word & 0xffff, *word >> 16]
                    .map(|number| if number < kept { scale } else { F::ZERO });
            }
        }
        factors
    }

    pub(crate) fn check(&self, op: &'static str, n_rows: usize) -> Result<()> {
        match self.rows {
            Some(rows) => same_size(op, "row numbers of the dropout", n_rows, rows.len()),
            None if u32::try_from(n_rows).is_ok() => Ok(()),
            None => {
                let (value, limit) = (n_rows as u128, u128::from(u32::MAX));
                Err(Error::Overflow { what: "rows of a dropout", value, limit })
            }
        }
    }
}

/// What the elements of a block of columns are multiplied by, in several rows.
pub(crate) type Factors<F> = [[F; NUMBERS]; LANES];

/// Room for the random numbers of a strip; the last block may hang over.
pub(crate) type Noise = [u16; STRIP + NUMBERS];

/// The random numbers of a strip, of a matrix of `k` columns whose first row is row `first`.
#[inline(always)]
pub(crate) fn fill(noise: &mut Noise, dropout: &Dropout<'_>, first: usize, strip: Strip, k: usize) {
    let whole = strip.len.min(k);
    let per_row = whole.div_ceil(NUMBERS);
    let first_block = (strip.col / NUMBERS) as u32;
    let (mut row, mut block) = (0, 0);
    for _ in 0..(strip.rows * per_row).div_ceil(LANES) {
        let (mut rows, mut blocks, mut places) = ([0; LANES], [0; LANES], [STRIP; LANES]);
        for lane in 0..LANES.min((strip.rows - row) * per_row - block) {
            rows[lane] = dropout.name(first + strip.row + row);
            blocks[lane] = first_block + block as u32;
            places[lane] = row * whole + block * NUMBERS;
            block += 1;
            if block == per_row {
                (row, block) = (row + 1, 0);
            }
        }
        let words = philox(&rows, &blocks, dropout.rng);
        for (place, words) in places.iter().zip(&words) {
            // What hangs over the end of a row is overwritten by the next row's.
            let numbers = &mut noise[*place..][..NUMBERS];
            for (pair, word) in numbers.chunks_exact_mut(2).zip(words) {
                pair[0] = *word as u16;
                pair[1] = (*word >> 16) as u16;
            }
        }
    }
}

/// Multiplies a strip by its mask.
#[inline(always)]
pub(crate) fn mask<F: Real>(stage: &mut [F], noise: &Noise, dropout: &Dropout<'_>) {
    let (kept, scale) = (dropout.kept, F::of(dropout.scale()));
    for (v, number) in stage.iter_mut().zip(noise) {
        *v *= if u32::from(*number) < kept { scale } else { F::ZERO };
    }
}

/// Philox4x32-10 of several counters `(row, 0, block, purpose)`.
#[inline(always)]
fn philox(rows: &[u32; LANES], blocks: &[u32; LANES], rng: Rng) -> [[u32; 4]; LANES] {
    let [c0, c1, c2, c3] = philox_words(rows, blocks, rng);
    let mut words = [[0; 4]; LANES];
    for l in 0..LANES {
        words[l] = [c0[l], c1[l], c2[l], c3[l]];
    }
    words
}

/// The same: all first words, all second ones, and so on.
#[inline(always)]
fn philox_words(rows: &[u32; LANES], blocks: &[u32; LANES], rng: Rng) -> [[u32; LANES]; 4] {
    const MULTIPLIER: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let (mut key, purpose) = rng.key();
    let (mut c0, mut c1) = (*rows, [0u32; LANES]);
    let (mut c2, mut c3) = (*blocks, [purpose; LANES]);
    for _ in 0..10 {
        for l in 0..LANES {
            let p0 = MULTIPLIER[0] * u64::from(c0[l]);
            let p1 = MULTIPLIER[1] * u64::from(c2[l]);
            c0[l] = (p1 >> 32) as u32 ^ c1[l] ^ key[0];
            c1[l] = p1 as u32;
            c2[l] = (p0 >> 32) as u32 ^ c3[l] ^ key[1];
            c3[l] = p0 as u32;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    [c0, c1, c2, c3]
}
