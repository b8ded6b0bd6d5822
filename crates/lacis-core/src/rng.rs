//! One seeded, counter-based generator, so that runs repeat whatever the number of threads.
//!
//! Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a
//! bijection of 128-bit counters under a 64-bit key. Who needs the random numbers of item `i` asks
//! for them by number; nobody waits for a predecessor.
//!
//! ```
//! use lacis_core::Rng;
//! let rng = Rng::new(7, "an example");
//! assert_eq!(rng.block(3), rng.block(3));
//! assert_ne!(rng.block(3), rng.block(4));
//! ```

/// Random numbers by number: a function of the seed, a purpose and a counter.
#[derive(Clone, Copy, Debug)]
pub struct Rng {
    key: [u32; 2],
    purpose: u32,
}

impl Rng {
    /// The numbers of `seed` for one purpose; other purposes see independent ones.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a: short names, told apart.
        let hash = purpose
            .bytes()
            .fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
        Rng { key: [seed as u32, (seed >> 32) as u32], purpose: hash }
    }

    /// The four numbers of counter `i`.
    #[inline]
    pub fn block(&self, i: u64) -> [u32; 4] {
        self.block_at(i, 0)
    }

    /// The four numbers of counter `(i, j)`, where one block per item is not enough.
    #[inline]
    pub fn block_at(&self, i: u64, j: u32) -> [u32; 4] {
        philox([i as u32, (i >> 32) as u32, j, self.purpose], self.key)
    }

    /// The key, and the last word of every counter: for who computes many blocks at once.
    pub fn key(&self) -> ([u32; 2], u32) {
        (self.key, self.purpose)
    }

    /// The numbers of item `i` one after another.
    #[inline]
    pub fn stream(&self, i: u64) -> Stream {
        Stream { rng: *self, item: i, block: 0, left: 0, numbers: [0; 4] }
    }
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..10 {
        let p0 = u64::from(MULTIPLIER[0]) * u64::from(counter[0]);
        let p1 = u64::from(MULTIPLIER[1]) * u64::from(counter[2]);
        counter = [
            (p1 >> 32) as u32 ^ counter[1] ^ key[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ counter[3] ^ key[1],
            p0 as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// The random numbers of one item, one after another.
#[derive(Clone, Debug)]
pub struct Stream {
    rng: Rng,
    item: u64,
    block: u32,
    left: usize,
    numbers: [u32; 4],
}

impl Stream {
    /// 32 random bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.left == 0 {
            self.numbers = self.rng.block_at(self.item, self.block);
            self.block = self.block.wrapping_add(1);
            self.left = 4;
        }
        self.left -= 1;
        self.numbers[3 - self.left]
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) << 32 | u64::from(self.next_u32())
    }

    /// Uniform in `[0, 1)`, with 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `0..bound`, without bias (Lemire's multiplication, redrawn where uneven).
    ///
    /// # Panics
    /// When the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "no number is below 0");
        let bound = bound as u64;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            let low = product as u64;
            // The remainder is below the bound, and a division is slow.
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (product >> 64) as usize;
            }
        }
    }

    /// As [`Stream::below`] for bounds of 32 bits, with half as many random ones.
    ///
    /// # Panics
    /// When the bound is 0.
    #[inline]
    pub fn below_u32(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "no number is below 0");
        loop {
            let product = u64::from(self.next_u32()) * u64::from(bound);
            let low = product as u32;
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (product >> 32) as u32;
            }
        }
    }

    /// Normally distributed, mean 0 and variance 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Puts the items in random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers published with the Random123 library.
    #[test]
    fn philox_gives_the_published_numbers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = u32::MAX;
        let expected = [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd];
        assert_eq!(philox([ones; 4], [ones; 2]), expected);
    }

    #[test]
    fn uniform_numbers_are_uniform() {
        let mut stream = Rng::new(1, "test").stream(0);
        let mut counts = [0; 10];
        (0..100_000).for_each(|_| counts[stream.below(10)] += 1);
        assert!(counts.iter().all(|&c| (9_600..10_400).contains(&c)), "{counts:?}");
        let mut counts = [0; 10];
        (0..100_000).for_each(|_| counts[stream.below_u32(10) as usize] += 1);
        assert!(counts.iter().all(|&c| (9_600..10_400).contains(&c)), "{counts:?}");
        // Two thirds of 2^32: a multiplication that is not redrawn gives even numbers twice.
        let mut is_even = || stream.below_u32(2_863_311_531).is_multiple_of(2);
        let even = (0..10_000).filter(|_| is_even()).count();
        assert!((4_800..5_200).contains(&even), "{even}");
        let mean = (0..100_000).map(|_| stream.unit()).sum::<f64>() / 1e5;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
    }

    #[test]
    fn normal_numbers_have_mean_0_and_variance_1() {
        let mut stream = Rng::new(2, "test").stream(0);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..100_000 {
            let x = stream.normal();
            sum += x;
            squares += x * x;
        }
        assert!((sum / 1e5).abs() < 0.02 && (squares / 1e5 - 1.0).abs() < 0.02);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<usize> = (0..100).collect();
        Rng::new(3, "test").stream(0).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
