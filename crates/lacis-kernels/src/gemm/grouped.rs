//! Many products of different weights in one call: typed and relational layers, heads.
//!
//! ```text
//!  y_i = x_i·W_g       dx_i = dy_i·W_gᵀ       dW_g = Σ_i x_iᵀ·dy_i       for rows i of group g
//! ```
//!
//! # Parallelism
//! The blocks of all groups are one list of work, so that many small groups fill all threads, and
//! so does one large group.

use lacis_core::error::same_size;
use lacis_core::reference::Form;
use lacis_core::{Error, Result, Threads};

use super::finish::Finish;
use super::pack::Side;
use super::rows::{self, Packed};
use super::{Product, blocks};
use crate::isa::Isa;
use crate::matrix::{Mat, MatMut};
use crate::real::Stored;

/// Rows cut into consecutive groups: group `g` is `ptr[g]..ptr[g + 1]`.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    ptr: &'a [usize],
}

impl<'a> Segments<'a> {
    /// Checks that `ptr` begins at 0, never falls and ends at `n_rows`.
    ///
    /// # Errors
    /// When it does not.
    pub fn new(ptr: &'a [usize], n_rows: usize) -> Result<Self> {
        let op = "segment_matmul";
        let (Some(&first), Some(&last)) = (ptr.first(), ptr.last()) else {
            return Err(Error::Shape { op, what: "row pointers", expected: 1, found: 0 });
        };
        same_size(op, "first row pointer", 0, first)?;
        same_size(op, "last row pointer", n_rows, last)?;
        if let Some(at) = ptr.windows(2).position(|pair| pair[0] > pair[1]) {
            let (index, bound) = (ptr[at] as u64, ptr[at + 1] as u64 + 1);
            return Err(Error::Index { op, what: "row pointer", index, at, bound });
        }
        Ok(Segments { ptr })
    }

    /// Number of groups.
    pub fn n(&self) -> usize {
        self.ptr.len() - 1
    }

    fn n_rows(&self) -> usize {
        self.ptr[self.ptr.len() - 1]
    }

    fn of<T: Stored>(&self, x: Mat<'a, T>) -> impl Iterator<Item = Mat<'a, T>> {
        self.ptr.windows(2).map(move |pair| x.rows(pair[0]..pair[1]))
    }
}
