//! From nodes to pairs: how likely an edge is, from the rows of its two ends.
//!
//! `dot` is `z_i·z_j`, the decoder of graph auto-encoders (Kipf, Welling, "Variational graph
//! auto-encoders", 2016). `mlp` is `relu((z_i ⊙ z_j)·W_1 + b_1)·W_2 + b_2`, as the link predictors
//! of the Open Graph Benchmark. Both are the same in either direction.
//!
//! Shapes: `z` is n × embedding, the result pairs × 1. Weights: `decoder.lins.l.{weight,bias}`.
//!
//! ```
//! use lacis::nn::{Config, Decoder, Model};
//!
//! let mut config = Config::new(5, 8, 4);
//! config.decoder = Some(Decoder::Dot);
//! let model = Model::new("gcn", &config, None)?;
//! assert_eq!(model.network.result.to_string(), "pair_dot(H2)");
//! # Ok::<(), lacis::Error>(())
//! ```

use lacis_core::reference::Activation;
use lacis_plan::op::PairOp;
use lacis_plan::{Expr, Op};

use super::{Build, Config, Init};

/// How the rows of two nodes become the score of their pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoder {
    /// Their dot product.
    Dot,
    /// Two linear layers on their product, element by element.
    Mlp,
}

/// Scores of pairs from the rows of all nodes.
pub fn decode(build: &mut Build, config: &Config, decoder: Decoder, z: &Expr) -> Expr {
    let pairs = |op| Expr::new(Op::Pairs(op), vec![z.clone()]);
    match decoder {
        Decoder::Dot => pairs(PairOp::Dot),
        Decoder::Mlp => {
            let widths = [z.width(), config.hidden, 1];
            let mut y = pairs(PairOp::Product);
            for (l, pair) in widths.windows(2).enumerate() {
                let (inputs, outputs) = (pair[0], pair[1]);
                let fan = Init::Kaiming { fan: inputs };
                let name = |what: &str| format!("decoder.lins.{l}.{what}");
                let w = build.weight(name("weight"), inputs, outputs, fan);
                let b = build.bias(name("bias"), outputs, fan);
                let layer = build.layer();
                y = (y * w).biased(&b).in_layer(layer);
                if l == 0 {
                    let key = build.key();
                    y = y.map(Activation::Relu).dropout(config.dropout, key);
                }
            }
            y
        }
    }
}
