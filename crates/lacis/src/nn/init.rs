//! First numbers of parameters, distributed as torch_geometric's are.

use lacis_core::{Dense, Rng};

/// How a parameter begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Uniform in ±√(6 / (rows + columns)).
    Glorot,
    /// Uniform in ±1/√fan: what torch's `Linear` has for weights and biases alike.
    Kaiming {
        /// Inputs of the layer.
        fan: usize,
    },
    /// Normal, of mean 0 and variance 1: what torch's `Embedding` has.
    Normal,
    /// One number everywhere.
    Constant(f64),
}

impl Init {
    /// The numbers of a parameter with this name and shape.
    pub fn values(self, seed: u64, name: &str, shape: [usize; 2]) -> Dense {
        let [rows, cols] = shape;
        let bound = match self {
            Init::Glorot => (6.0 / (rows + cols) as f64).sqrt(),
            Init::Kaiming { fan } => 1.0 / (fan.max(1) as f64).sqrt(),
            Init::Constant(c) => return Dense::from_fn(rows, cols, |_, _| c),
            Init::Normal => {
                let rng = Rng::new(seed, &format!("init {name}"));
                let normal = |i: usize, j: usize| rng.stream((i * cols + j) as u64).normal();
                return Dense::from_fn(rows, cols, normal);
            }
        };
        let rng = Rng::new(seed, &format!("init {name}"));
        Dense::from_fn(rows, cols, |i, j| {
            let unit = rng.stream((i * cols + j) as u64).unit();
            (2.0 * unit - 1.0) * bound
        })
    }
}
