//! Properties of matrices and graphs against the most obvious computation.

mod building; // unsorted entries to matrices, and matrices to their transposes
mod self_loops; // the ways to treat them
