//! What training leaves on disk: named tensors in safetensors files, and the folder of a run.
//!
//! Every file but the log of metrics appears whole or not at all: it is written under a hidden
//! name, brought to disk and renamed ([`lacis_data::staged`]). What is read is not trusted: a
//! file that is cut short, or a tensor that is missing, left over or of another shape, is an error
//! that names it.

mod run;
mod tensor;
mod tensors;
mod write;

pub use run::{Beginning, Checkpoint, RunFolder};
pub use tensor::{Scalar, Tensor, TensorType};
pub use tensors::Tensors;
