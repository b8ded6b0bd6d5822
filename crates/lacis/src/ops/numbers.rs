//! Made-up operands that another program can make up too: a function of a name and a place.
//!
//! ```text
//!  mix(h)   = two rounds of multiply and xor-shift on 32 bits
//!  x[i, j]  = (mix(mix(i + seed) + j) >> 8) / 2²³ - 1        in [-1, 1), exact in f32
//!  with a share s of zeros: 0 where thin[i, j] < 2·s - 1
//! ```
//! Peers get graphs as files but make their dense operands themselves.

use lacis_core::{Dense, Element, Result};

/// The numbers of a name.
#[derive(Clone, Copy, Debug)]
pub struct Numbers(pub &'static str);

impl Numbers {
    fn seed(self) -> u32 {
        self.0.bytes().fold(0x811c_9dc5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
    }

    /// Element `(i, j)`.
    pub fn at(self, i: usize, j: usize) -> f32 {
        element(mix((i as u32).wrapping_add(self.seed())), j)
    }

    /// A matrix.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn matrix<T: Element>(self, n_rows: usize, n_cols: usize) -> Result<Dense<T>> {
        let mut dense = Dense::try_zeros(n_rows, n_cols)?;
        let seed = self.seed();
        if n_cols > 0 {
            for (i, row) in dense.data_mut().chunks_exact_mut(n_cols).enumerate() {
                let mixed = mix((i as u32).wrapping_add(seed));
                let numbers = row.iter_mut().enumerate();
                numbers.for_each(|(j, x)| *x = T::from_f64(f64::from(element(mixed, j))));
            }
        }
        Ok(dense)
    }

    /// A matrix in which this share of the elements is zero.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn thinned<T: Element>(self, n_rows: usize, n_cols: usize, zeros: f64) -> Result<Dense<T>> {
        let mut dense = self.matrix(n_rows, n_cols)?;
        if zeros > 0.0 && n_cols > 0 {
            let (seed, below) = (Numbers("thin").seed(), (2.0 * zeros - 1.0) as f32);
            for (i, row) in dense.data_mut().chunks_exact_mut(n_cols).enumerate() {
                let mixed = mix((i as u32).wrapping_add(seed));
                let thin = row.iter_mut().enumerate().filter(|(j, _)| element(mixed, *j) < below);
                thin.for_each(|(_, x)| *x = T::from_f64(0.0));
            }
        }
        Ok(dense)
    }

    /// A column.
    pub fn vector(self, len: usize) -> Vec<f32> {
        (0..len).map(|i| self.at(i, 0)).collect()
    }
}

#[inline]
fn element(mixed: u32, j: usize) -> f32 {
    (mix(mixed.wrapping_add(j as u32)) >> 8) as f32 / 8_388_608.0 - 1.0
}

#[inline]
fn mix(mut h: u32) -> u32 {
    h = (h ^ (h >> 16)).wrapping_mul(0x7feb_352d);
    h = (h ^ (h >> 15)).wrapping_mul(0x846c_a68b);
    h ^ (h >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_and_repeat() {
        let x: Dense = Numbers("x").matrix(100, 7).unwrap();
        let all: Vec<f32> = x.rows().flatten().copied().collect();
        assert!(all.iter().all(|v| (-1.0..1.0).contains(v)));
        let mean = all.iter().sum::<f32>() / 700.0;
        assert!(mean.abs() < 0.1, "{mean}");
        assert_eq!(x.row(3)[2], Numbers("x").at(3, 2));
        assert_ne!(Numbers("x").at(0, 0), Numbers("values").at(0, 0));
    }

    #[test]
    fn a_share_is_zero_and_the_rest_is_the_same() {
        let (x, thin): (Dense, Dense) =
            (Numbers("x").matrix(100, 70).unwrap(), Numbers("x").thinned(100, 70, 0.9).unwrap());
        let pairs: Vec<(&f32, &f32)> = x.rows().flatten().zip(thin.rows().flatten()).collect();
        let kept = pairs.iter().filter(|(_, thin)| **thin != 0.0).count();
        assert!((500..900).contains(&kept), "{kept}");
        assert!(pairs.iter().all(|(x, thin)| **thin == 0.0 || x == thin));
        assert_eq!(Numbers("x").thinned::<f32>(3, 3, 0.0).unwrap().row(2)[1], x.row(2)[1]);
    }
}
