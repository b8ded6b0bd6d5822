//! Properties of matrices and graphs against the most obvious computation.
#![allow(clippy::unwrap_used)]

mod building; // unsorted entries to matrices, and matrices to their transposes
mod self_loops; // the ways to treat them
