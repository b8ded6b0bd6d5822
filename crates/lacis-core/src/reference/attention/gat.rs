//! GAT (Veličković et al., "Graph attention networks", ICLR 2018).

use super::super::elementwise::{Activation, activate, activate_backward};
use super::super::sddmm::{EdgeOp, at_sources, sddmm, sum_at_sources, sum_at_targets};
use super::super::{add, check_shape};
use super::{Heads, PerEdge, plus};
use crate::{Csr, Dense, Error, Result};

/// The inputs of a GAT, features already multiplied by the layer's weights. See the module's head
/// for the formula.
#[derive(Clone, Copy, Debug)]
pub struct Gat<'a> {
    /// `x`: one row per target, `heads·C` wide.
    pub target: &'a Dense<f64>,
    /// `z`: one row per source, `heads·C` wide.
    pub source: &'a Dense<f64>,
    /// `t`: the vectors for targets, `heads × C`.
    pub target_vectors: &'a Dense<f64>,
    /// `u`: the vectors for sources, `heads × C`.
    pub source_vectors: &'a Dense<f64>,
    /// `w`: the vectors for edge features, `heads × C`; there exactly when edge features are.
    pub edge_vectors: Option<&'a Dense<f64>>,
    /// What is given per edge; the bias is inside the LeakyReLU.
    pub edges: PerEdge<'a>,
    /// The LeakyReLU's slope below 0, and at 0.
    pub slope: f64,
}

/// The gradient of each input of a [`Gat`].
#[derive(Clone, Debug)]
pub struct GatGrads {
    /// Of `x`.
    pub target: Dense<f64>,
    /// Of `z`.
    pub source: Dense<f64>,
    /// Of `t`.
    pub target_vectors: Dense<f64>,
    /// Of `u`.
    pub source_vectors: Dense<f64>,
    /// Of `f` and `w`, where they were given.
    pub edge: Option<(Dense<f64>, Dense<f64>)>,
    /// Of `b`, whether it was given or not.
    pub bias: Dense<f64>,
}

impl Gat<'_> {
    /// `y`: one row per target, `heads·C` wide.
    ///
    /// # Errors
    /// When a size does not fit, or edge features come without vectors.
    pub fn forward(&self, a: &Csr) -> Result<Dense<f64>> {
        let heads = self.check(a)?;
        let scores = activate(&self.sums(a, heads)?, self.leaky());
        self.edges.attend(a, heads, &scores, &at_sources(a, self.source))
    }

    /// The gradient of every input from that of `y`.
    ///
    /// # Errors
    /// When a size does not fit, or edge features come without vectors.
    pub fn backward(&self, a: &Csr, grad: &Dense<f64>) -> Result<GatGrads> {
        let heads = self.check(a)?;
        let sums = self.sums(a, heads)?;
        let (scores, values) = (activate(&sums, self.leaky()), at_sources(a, self.source));
        let (d_scores, d_values) =
            self.edges.attend_backward(a, heads, (&scores, &values), grad)?;
        let bias = activate_backward(&sums, self.leaky(), &d_scores)?;

        let d_target = sum_at_targets(a, &bias);
        let (target, target_vectors) =
            heads.projected_backward(self.target, self.target_vectors, &d_target);
        let d_source = sum_at_sources(a, &bias);
        let (source, source_vectors) =
            heads.projected_backward(self.source, self.source_vectors, &d_source);
        let edge = self
            .edge_term()
            .map(|(features, vectors)| heads.projected_backward(features, vectors, &bias));
        Ok(GatGrads {
            target,
            source: add(&source, &sum_at_sources(a, &d_values))?,
            target_vectors,
            source_vectors,
            edge,
            bias,
        })
    }

    fn leaky(&self) -> Activation {
        Activation::LeakyRelu(self.slope)
    }

    fn edge_term(&self) -> Option<(&Dense<f64>, &Dense<f64>)> {
        self.edges.features.zip(self.edge_vectors)
    }

    /// What the LeakyReLU is applied to, one row per edge.
    fn sums(&self, a: &Csr, heads: Heads) -> Result<Dense<f64>> {
        let target = heads.projected(self.target, self.target_vectors);
        let source = heads.projected(self.source, self.source_vectors);
        let ends = sddmm(a, &target, &source, EdgeOp::Add)?;
        let edge = self.edge_term().map(|(features, vectors)| heads.projected(features, vectors));
        plus(plus(ends, edge.as_ref())?, self.edges.bias)
    }

    fn check(&self, a: &Csr) -> Result<Heads> {
        let heads = Heads::of_vectors(self.target_vectors);
        let what = ["number of source vectors", "length of a source vector"];
        check_shape("gat", what, (heads.n, heads.channels), self.source_vectors)?;
        let what = ["rows of the target features", "columns of the target features"];
        heads.check("gat", what, a.n_rows(), self.target)?;
        let what = ["rows of the source features", "columns of the source features"];
        heads.check("gat", what, a.n_cols(), self.source)?;
        self.edges.check("gat", heads, a.nnz())?;
        match (self.edges.features, self.edge_vectors) {
            (None, None) => {}
            (Some(_), Some(vectors)) => {
                let what = ["number of edge vectors", "length of an edge vector"];
                check_shape("gat", what, (heads.n, heads.channels), vectors)?;
            }
            _ => {
                let problem = "edge features and edge vectors come together";
                return Err(Error::argument("gat", problem));
            }
        }
        Ok(heads)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::check::*;
    use super::super::super::{Reduce, spmm};
    use super::*;

    /// Two heads of three channels on the test graph, from seeds.
    struct Inputs([Dense<f64>; 8]);

    impl Inputs {
        fn new(nnz: usize) -> Self {
            let mask = Dense::from_fn(nnz, 2, |e, h| [2.0, 0.0, 2.0, 2.0][(e + h) % 4]);
            Inputs([
                matrix(1, 5, 6),
                matrix(2, 4, 6),
                matrix(3, 2, 3),
                matrix(4, 2, 3),
                matrix(5, 2, 3),
                matrix(6, nnz, 6),
                matrix(7, nnz, 2),
                mask,
            ])
        }

        fn with(&self, at: usize, other: &Dense<f64>) -> Self {
            let mut inputs = self.0.clone();
            inputs[at] = other.clone();
            Inputs(inputs)
        }

        fn gat(&self) -> Gat<'_> {
            let [target, source, t, u, w, features, bias, mask] = &self.0;
            Gat {
                target,
                source,
                target_vectors: t,
                source_vectors: u,
                edge_vectors: Some(w),
                edges: PerEdge { features: Some(features), bias: Some(bias), mask: Some(mask) },
                slope: 0.2,
            }
        }
    }

    #[test]
    fn every_gradient_is_a_slope() {
        let (a, dy) = (graph(), matrix(8, 5, 6));
        let inputs = Inputs::new(a.nnz());
        let grads = inputs.gat().backward(&a, &dy).unwrap();
        let (features, edge_vectors) = grads.edge.unwrap();
        let expected = [
            grads.target,
            grads.source,
            grads.target_vectors,
            grads.source_vectors,
            edge_vectors,
            features,
            grads.bias,
        ];
        for (at, grad) in expected.iter().enumerate() {
            assert_matrix_gradient(&inputs.0[at], grad, |x| {
                dot(&inputs.with(at, x).gat().forward(&a).unwrap(), &dy)
            });
        }
    }

    #[test]
    fn known_values() {
        // One target, two sources with features 1 and 3; sums −1 + 1 = 0 and −1 + 3 = 2.
        let a = csr(2, &[&[(0, 5.0), (1, 5.0)], &[]]);
        let (target, source, one) =
            (dense(&[[-1.0], [4.0]]), dense(&[[1.0], [3.0]]), dense(&[[1.0]]));
        let gat = Gat {
            target: &target,
            source: &source,
            target_vectors: &one,
            source_vectors: &one,
            edge_vectors: None,
            edges: PerEdge::default(),
            slope: 0.2,
        };
        let p = 1.0 / (1.0 + 2f64.exp());
        assert_close(&flat(&gat.forward(&a).unwrap()), &[p + 3.0 * (1.0 - p), 0.0]);
        let mask = dense(&[[2.0], [0.0]]);
        let edges = PerEdge { mask: Some(&mask), ..gat.edges };
        let dropped = Gat { edges, ..gat };
        assert_close(&flat(&dropped.forward(&a).unwrap()), &[2.0 * p, 0.0]);
        // At the kink of the first edge the slope is 0.2, not 1 and not their mean.
        let grads = gat.backward(&a, &dense(&[[1.0], [1.0]])).unwrap();
        let d = p * (1.0 - p) * (1.0 - 3.0);
        assert_close(&flat(&grads.bias), &[0.2 * d, -d]);
        assert!(grads.edge.is_none());
    }

    #[test]
    fn equal_scores_make_a_mean() {
        let (a, source) = (graph(), matrix(1, 4, 4));
        let (target, zero) = (Dense::zeros(5, 4), Dense::zeros(2, 2));
        let gat = Gat {
            target: &target,
            source: &source,
            target_vectors: &zero,
            source_vectors: &zero,
            edge_vectors: None,
            edges: PerEdge::default(),
            slope: 0.2,
        };
        let unweighted = a.clone().with_values(None).unwrap();
        let mean = spmm(&unweighted, &source, Reduce::Mean).unwrap();
        assert_close(&flat(&gat.forward(&a).unwrap()), &flat(&mean));
    }

    #[test]
    fn without_edges_or_channels() {
        let empty = Csr::empty(5, 4).unwrap();
        let inputs = Inputs::new(0);
        assert_eq!(inputs.gat().forward(&empty).unwrap(), Dense::zeros(5, 6));
        let grads = inputs.gat().backward(&empty, &matrix(8, 5, 6)).unwrap();
        assert_eq!(grads.source, Dense::zeros(4, 6));
        let (target, source, none) = (Dense::zeros(5, 0), Dense::zeros(4, 0), Dense::zeros(2, 0));
        let gat = Gat {
            target: &target,
            source: &source,
            target_vectors: &none,
            source_vectors: &none,
            edge_vectors: None,
            edges: PerEdge::default(),
            slope: 0.2,
        };
        assert_eq!(gat.forward(&graph()).unwrap(), target);
        assert_eq!(gat.backward(&graph(), &target).unwrap().source, source);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let a = graph();
        let (inputs, wrong) = (Inputs::new(a.nnz()), matrix(1, 1, 1));
        for at in 0..8 {
            assert!(inputs.with(at, &wrong).gat().forward(&a).is_err(), "{at}");
        }
        assert!(inputs.gat().backward(&a, &wrong).is_err());
        let alone = Gat { edge_vectors: None, ..inputs.gat() };
        assert!(alone.forward(&a).is_err());
    }
}
