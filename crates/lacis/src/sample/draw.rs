//! Which of a node's edges are drawn: some of many, each set equally likely, none twice.
//!
//! Floyd's way (Bentley and Floyd, "A sample of brilliance", CACM 1987), `count` draws for any
//! degree:
//! ```text
//!   for j in degree − count .. degree:  t = random in 0..=j;  take t, or j if t is taken already
//! ```
//! A short list of those taken is searched; for a long one there is a mark per edge.

use lacis_core::{Rng, Stream};

/// Up to this many, searching the list takes less time than looking for a mark.
const SEARCHED: usize = 32;

/// The random numbers of one batch. A batch's key is drawn from the seed, so that a node of two
/// batches draws other edges in each.
pub(super) fn batch_rng(seed: u64, purpose: &str, epoch: u64, batch: usize) -> Rng {
    let [a, b, ..] = Rng::new(seed, "key of a batch").block_at(epoch, batch as u32);
    Rng::new(u64::from(a) << 32 | u64::from(b), purpose)
}

/// Memory for drawing long lists.
#[derive(Default)]
pub(super) struct Marks {
    marks: Vec<u32>,
    stamp: u32,
}

impl Marks {
    /// Adds `first + t` to the list for `count` different `t` below `degree`.
    pub(super) fn draw(
        &mut self,
        stream: &mut Stream,
        (first, degree): (usize, u32),
        count: u32,
        list: &mut Vec<usize>,
    ) {
        let begin = list.len();
        if count as usize > SEARCHED {
            self.renew(degree);
            for j in degree - count..degree {
                let t = stream.below_u32(j + 1);
                let t = if self.marks[t as usize] == self.stamp { j } else { t };
                self.marks[t as usize] = self.stamp;
                list.push(first + t as usize);
            }
            return;
        }
        for j in degree - count..degree {
            let t = first + stream.below_u32(j + 1) as usize;
            let taken = list[begin..].iter().fold(false, |taken, &other| taken | (other == t));
            list.push(if taken { first + j as usize } else { t });
        }
    }

    /// No mark is set, and there is one for each edge.
    fn renew(&mut self, degree: u32) {
        if self.marks.len() < degree as usize {
            self.marks.resize(degree as usize, 0);
        }
        self.stamp = self.stamp.checked_add(1).unwrap_or_else(|| {
            self.marks.fill(0);
            1
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair of 6 is equally likely, and nothing is drawn twice.
    #[test]
    fn every_set_is_equally_likely() {
        let mut marks = Marks::default();
        let mut counts = [[0u32; 6]; 6];
        for item in 0..30_000 {
            let mut list = Vec::new();
            marks.draw(&mut Rng::new(1, "test").stream(item), (10, 6), 2, &mut list);
            let [a, b] = [list[0] - 10, list[1] - 10];
            counts[a.min(b)][a.max(b)] += 1;
        }
        for a in 0..6 {
            assert_eq!(counts[a][a], 0);
            assert!((a + 1..6).all(|b| (1_850..2_150).contains(&counts[a][b])), "{counts:?}");
        }
    }

    #[test]
    fn long_lists_have_no_repeats_either() {
        let mut marks = Marks { marks: vec![], stamp: u32::MAX - 1 };
        for (degree, count) in [(100, 33), (1000, 999), (40, 40)] {
            let mut list = Vec::new();
            let mut stream = Rng::new(2, "test").stream(u64::from(degree));
            marks.draw(&mut stream, (0, degree), count, &mut list);
            list.sort_unstable();
            list.dedup();
            assert_eq!(list.len(), count as usize);
            assert!(list.iter().all(|&t| t < degree as usize));
        }
    }

    #[test]
    fn both_ways_draw_the_same() {
        let draw = |marks: &mut Marks, count| {
            let mut list = Vec::new();
            marks.draw(&mut Rng::new(3, "test").stream(0), (0, 50), count, &mut list);
            list
        };
        let mut marks = Marks::default();
        // Draw j of 33 is draw j − 1 of 32 but for its bound: compare by the definition instead.
        for count in [5, 32, 33, 50] {
            let mut stream = Rng::new(3, "test").stream(0);
            let mut expected: Vec<usize> = Vec::new();
            for j in 50 - count..50 {
                let t = stream.below_u32(j + 1) as usize;
                expected.push(if expected.contains(&t) { j as usize } else { t });
            }
            assert_eq!(draw(&mut marks, count), expected);
        }
    }
}
