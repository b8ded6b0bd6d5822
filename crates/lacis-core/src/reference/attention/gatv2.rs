//! GATv2 (Brody, Alon, Yahav, "How attentive are graph attention networks?", ICLR 2022).

use super::super::add;
use super::super::elementwise::{Activation, activate, activate_backward};
use super::super::sddmm::{EdgeOp, at_sources, sddmm, sum_at_sources, sum_at_targets};
use super::{Heads, PerEdge, plus};
use crate::{Csr, Dense, Result};

/// The inputs of a GATv2, features already multiplied by the layer's weights. See the module's
/// head for the formula.
#[derive(Clone, Copy, Debug)]
pub struct GatV2<'a> {
    /// `x`: one row per target, `heads·C` wide.
    pub target: &'a Dense<f64>,
    /// `z`: one row per source, `heads·C` wide.
    pub source: &'a Dense<f64>,
    /// `v`: the attention vectors, `heads × C`.
    pub vectors: &'a Dense<f64>,
    /// What is given per edge; the features are inside the LeakyReLU, the bias is not.
    pub edges: PerEdge<'a>,
    /// The LeakyReLU's slope below 0, and at 0.
    pub slope: f64,
}

/// The gradient of each input of a [`GatV2`].
#[derive(Clone, Debug)]
pub struct GatV2Grads {
    /// Of `x`.
    pub target: Dense<f64>,
    /// Of `z`.
    pub source: Dense<f64>,
    /// Of `v`.
    pub vectors: Dense<f64>,
    /// Of `f`, whether it was given or not.
    pub features: Dense<f64>,
    /// Of `b`, whether it was given or not.
    pub bias: Dense<f64>,
}

impl GatV2<'_> {
    /// `y`: one row per target, `heads·C` wide.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn forward(&self, a: &Csr) -> Result<Dense<f64>> {
        let heads = self.check(a)?;
        let scores = self.scores(heads, &self.sums(a)?)?;
        self.edges.attend(a, heads, &scores, &at_sources(a, self.source))
    }

    /// The gradient of every input from that of `y`.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn backward(&self, a: &Csr, grad: &Dense<f64>) -> Result<GatV2Grads> {
        let heads = self.check(a)?;
        let sums = self.sums(a)?;
        let (scores, values) = (self.scores(heads, &sums)?, at_sources(a, self.source));
        let (bias, d_values) = self.edges.attend_backward(a, heads, (&scores, &values), grad)?;

        let activated = activate(&sums, self.leaky());
        let (d_activated, vectors) = heads.projected_backward(&activated, self.vectors, &bias);
        let features = activate_backward(&sums, self.leaky(), &d_activated)?;
        Ok(GatV2Grads {
            target: sum_at_targets(a, &features),
            source: sum_at_sources(a, &add(&features, &d_values)?),
            vectors,
            features,
            bias,
        })
    }

    fn leaky(&self) -> Activation {
        Activation::LeakyRelu(self.slope)
    }

    /// What the LeakyReLU is applied to, one row per edge.
    fn sums(&self, a: &Csr) -> Result<Dense<f64>> {
        let ends = sddmm(a, self.target, self.source, EdgeOp::Add)?;
        plus(ends, self.edges.features)
    }

    fn scores(&self, heads: Heads, sums: &Dense<f64>) -> Result<Dense<f64>> {
        let scores = heads.projected(&activate(sums, self.leaky()), self.vectors);
        plus(scores, self.edges.bias)
    }

    fn check(&self, a: &Csr) -> Result<Heads> {
        let heads = Heads::of_vectors(self.vectors);
        let what = ["rows of the target features", "columns of the target features"];
        heads.check("gatv2", what, a.n_rows(), self.target)?;
        let what = ["rows of the source features", "columns of the source features"];
        heads.check("gatv2", what, a.n_cols(), self.source)?;
        self.edges.check("gatv2", heads, a.nnz())?;
        Ok(heads)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::check::*;
    use super::*;

    /// Two heads of three channels on the test graph, from seeds.
    struct Inputs([Dense<f64>; 6]);

    impl Inputs {
        fn new(nnz: usize) -> Self {
            let mask = Dense::from_fn(nnz, 2, |e, h| [2.0, 0.0, 2.0, 2.0][(e + h) % 4]);
            Inputs([
                matrix(11, 5, 6),
                matrix(12, 4, 6),
                matrix(13, 2, 3),
                matrix(14, nnz, 6),
                matrix(15, nnz, 2),
                mask,
            ])
        }

        fn with(&self, at: usize, other: &Dense<f64>) -> Self {
            let mut inputs = self.0.clone();
            inputs[at] = other.clone();
            Inputs(inputs)
        }

        fn gat(&self) -> GatV2<'_> {
            let [target, source, vectors, features, bias, mask] = &self.0;
            GatV2 {
                target,
                source,
                vectors,
                edges: PerEdge { features: Some(features), bias: Some(bias), mask: Some(mask) },
                slope: 0.2,
            }
        }
    }

    #[test]
    fn every_gradient_is_a_slope() {
        let (a, dy) = (graph(), matrix(16, 5, 6));
        let inputs = Inputs::new(a.nnz());
        let grads = inputs.gat().backward(&a, &dy).unwrap();
        let expected = [grads.target, grads.source, grads.vectors, grads.features, grads.bias];
        for (at, grad) in expected.iter().enumerate() {
            assert_matrix_gradient(&inputs.0[at], grad, |x| {
                dot(&inputs.with(at, x).gat().forward(&a).unwrap(), &dy)
            });
        }
    }

    #[test]
    fn known_values() {
        // Sums −2 + 1 = −1 and −2 + 3 = 1, leaky −0.5 and 1, scores −1 and 2.
        let a = csr(2, &[&[], &[(1, 5.0), (0, 5.0)]]);
        let (target, source) = (dense(&[[9.0], [-2.0]]), dense(&[[1.0], [3.0]]));
        let vectors = dense(&[[2.0]]);
        let gat = GatV2 {
            target: &target,
            source: &source,
            vectors: &vectors,
            edges: PerEdge::default(),
            slope: 0.5,
        };
        let p = 1.0 / (1.0 + 3f64.exp());
        assert_close(&flat(&gat.forward(&a).unwrap()), &[0.0, p + 3.0 * (1.0 - p)]);
        // A bias that makes the scores equal makes a mean.
        let bias = dense(&[[-3.0], [0.0]]);
        let edges = PerEdge { bias: Some(&bias), ..gat.edges };
        let level = GatV2 { edges, ..gat };
        assert_close(&flat(&level.forward(&a).unwrap()), &[0.0, 2.0]);
    }

    #[test]
    fn without_edges() {
        let (empty, inputs) = (Csr::empty(5, 4).unwrap(), Inputs::new(0));
        assert_eq!(inputs.gat().forward(&empty).unwrap(), Dense::zeros(5, 6));
        let grads = inputs.gat().backward(&empty, &matrix(8, 5, 6)).unwrap();
        assert_eq!(grads.vectors, Dense::zeros(2, 3));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let a = graph();
        let (inputs, wrong) = (Inputs::new(a.nnz()), matrix(1, 1, 1));
        for at in 0..6 {
            assert!(inputs.with(at, &wrong).gat().forward(&a).is_err(), "{at}");
        }
        assert!(inputs.gat().backward(&a, &wrong).is_err());
    }
}
