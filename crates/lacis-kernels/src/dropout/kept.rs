//! Which of many items stay: a bit for each.
//!
//! ```text
//!   item e   is column e mod 8 of row e / 8 of the mask, and bit e mod 64 of word e / 64
//! ```
//! One block of random numbers serves eight items, and items can be looked up in any order.

use lacis_core::Threads;

use super::{Dropout, NUMBERS, philox_words};
use crate::isa::{Arith, Isa, per_isa};
use crate::lanes::LANES;

/// Items of a word.
const ITEMS: usize = u64::BITS as usize;
/// Words that one call of the generator fills.
const WORDS: usize = LANES * NUMBERS / ITEMS;
/// Words of a piece of work.
const PIECE: usize = 1 << 9;

impl Dropout<'_> {
    /// Which items are kept, as many as there are bits.
    ///
    /// # Parallelism
    /// Each piece of the words is written by one thread.
    pub fn keep_items(&self, isa: Isa, words: &mut [u64], threads: &Threads) {
        let parts = words.chunks_mut(PIECE).enumerate().collect();
        threads.for_each(parts, |(piece, words)| {
            let first = (piece * PIECE * ITEMS / NUMBERS) as u32;
            fill(isa, Part { dropout: *self, first, words });
        });
    }
}

/// Some words, and the row that their first item is in.
struct Part<'a> {
    dropout: Dropout<'a>,
    first: u32,
    words: &'a mut [u64],
}

per_isa!(fn fill<[], []>(part: Part<'_>) = body);

#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn body<M: Arith>(part: Part<'_>) {
    let Part { dropout, mut first, words } = part;
    for words in words.chunks_mut(WORDS) {
        let mut rows = [0; LANES];
        for (row, at) in rows.iter_mut().zip(first..) {
            *row = at;
        }
        first += LANES as u32;
        let numbers = philox_words(&rows, &[0; LANES], dropout.rng);
        let mut bits = [0_u32; LANES];
        for (pair, numbers) in numbers.iter().enumerate() {
            for (bits, number) in bits.iter_mut().zip(numbers) {
                let low = u32::from(number & 0xffff < dropout.kept);
                let high = u32::from(number >> 16 < dropout.kept);
                *bits |= (low | high << 1) << (2 * pair);
            }
        }
        let bytes = bits.map(|bits| bits as u8);
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use lacis_core::Rng;

    use super::*;

    #[test]
    fn bits_are_those_of_the_mask_for_any_number_of_threads() {
        for (p, count) in [(0.0, 3), (0.3, PIECE * 2 + 5), (0.5, 1), (1.0, 7)] {
            let dropout = Dropout::new(Rng::new(5, "edges"), p).unwrap();
            let expected: Vec<u64> = (0..count)
                .map(|word| {
                    let items = (0..ITEMS).map(|bit| (bit, word * ITEMS + bit));
                    let keeps = |e: usize| dropout.keeps((e / NUMBERS) as u32, e % NUMBERS);
                    items.fold(0, |bits, (bit, e)| bits | u64::from(keeps(e)) << bit)
                })
                .collect();
            for (isa, threads) in Isa::available().into_iter().zip([1, 2, 7]) {
                let mut found = vec![1; count];
                dropout.keep_items(isa, &mut found, &Threads::new(threads).unwrap());
                assert!(found == expected, "{p}, {}", isa.name());
            }
        }
    }
}
