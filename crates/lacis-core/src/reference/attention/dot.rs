//! Scaled dot-product attention over a graph's edges (Shi et al., "Masked label prediction", IJCAI
//! 2021, which torch_geometric's `TransformerConv` implements).

use super::super::add;
use super::super::sddmm::{at_sources, at_targets, sum_at_sources, sum_at_targets};
use super::{Heads, PerEdge, plus};
use crate::{Csr, Dense, Result};

/// The inputs of a dot-product attention. See the module's head for the formula.
#[derive(Clone, Copy, Debug)]
pub struct DotAttention<'a> {
    /// `q`: one row per target, `heads·C` wide.
    pub queries: &'a Dense<f64>,
    /// `k`: one row per source, `heads·C` wide.
    pub keys: &'a Dense<f64>,
    /// `v`: one row per source, a multiple of the heads wide; as wide as the keys where there are
    /// edge features, which are added to both.
    pub values: &'a Dense<f64>,
    /// Number of heads.
    pub heads: usize,
    /// What the dot products are multiplied by: `1/√C` as a rule.
    pub scale: f64,
    /// What is given per edge.
    pub edges: PerEdge<'a>,
}

/// The gradient of each input of a [`DotAttention`].
#[derive(Clone, Debug)]
pub struct DotAttentionGrads {
    /// Of `q`.
    pub queries: Dense<f64>,
    /// Of `k`.
    pub keys: Dense<f64>,
    /// Of `v`.
    pub values: Dense<f64>,
    /// Of `f`, where it was given.
    pub features: Option<Dense<f64>>,
    /// Of `b`, whether it was given or not.
    pub bias: Dense<f64>,
}

/// Queries, keys and values of every edge.
struct Rows {
    queries: Dense<f64>,
    keys: Dense<f64>,
    values: Dense<f64>,
}

impl DotAttention<'_> {
    /// `y`: one row per target, as wide as the values.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn forward(&self, a: &Csr) -> Result<Dense<f64>> {
        let (keys, values) = self.check(a)?;
        let rows = self.rows(a)?;
        let scores = self.scores(keys, &rows)?;
        self.edges.attend(a, values, &scores, &rows.values)
    }

    /// The gradient of every input from that of `y`.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn backward(&self, a: &Csr, grad: &Dense<f64>) -> Result<DotAttentionGrads> {
        let (keys, values) = self.check(a)?;
        let rows = self.rows(a)?;
        let scores = self.scores(keys, &rows)?;
        let given = (&scores, &rows.values);
        let (bias, d_values) = self.edges.attend_backward(a, values, given, grad)?;
        let d_dots = self.scaled(&bias);
        let d_keys = keys.scaled(&d_dots, &rows.queries);
        let features = self.edges.features.map(|_| add(&d_keys, &d_values));
        Ok(DotAttentionGrads {
            queries: sum_at_targets(a, &keys.scaled(&d_dots, &rows.keys)),
            keys: sum_at_sources(a, &d_keys),
            values: sum_at_sources(a, &d_values),
            features: features.transpose()?,
            bias,
        })
    }

    fn rows(&self, a: &Csr) -> Result<Rows> {
        Ok(Rows {
            queries: at_targets(a, self.queries),
            keys: plus(at_sources(a, self.keys), self.edges.features)?,
            values: plus(at_sources(a, self.values), self.edges.features)?,
        })
    }

    fn scores(&self, heads: Heads, rows: &Rows) -> Result<Dense<f64>> {
        plus(self.scaled(&heads.dots(&rows.queries, &rows.keys)), self.edges.bias)
    }

    fn scaled(&self, x: &Dense<f64>) -> Dense<f64> {
        Dense::from_fn(x.n_rows(), x.n_cols(), |e, h| self.scale * x.at(e, h))
    }

    /// The heads of the keys and of the values.
    fn check(&self, a: &Csr) -> Result<(Heads, Heads)> {
        let op = "dot attention";
        let keys = Heads::side_by_side(self.heads, self.keys.n_cols())?;
        let values = Heads::side_by_side(self.heads, self.values.n_cols())?;
        keys.check(
            op,
            ["rows of the queries", "columns of the queries"],
            a.n_rows(),
            self.queries,
        )?;
        keys.check(op, ["rows of the keys", "columns of the keys"], a.n_cols(), self.keys)?;
        values.check(
            op,
            ["rows of the values", "columns of the values"],
            a.n_cols(),
            self.values,
        )?;
        self.edges.check(op, keys, a.nnz())?;
        // Edge features join the values too.
        self.edges.check(op, values, a.nnz())?;
        Ok((keys, values))
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
                matrix(21, 5, 6),
                matrix(22, 4, 6),
                matrix(23, 4, 6),
                matrix(24, nnz, 2),
                matrix(25, nnz, 6),
                mask,
            ])
        }

        fn with(&self, at: usize, other: &Dense<f64>) -> Self {
            let mut inputs = self.0.clone();
            inputs[at] = other.clone();
            Inputs(inputs)
        }

        fn attention(&self) -> DotAttention<'_> {
            let [queries, keys, values, bias, features, mask] = &self.0;
            DotAttention {
                queries,
                keys,
                values,
                heads: 2,
                scale: 1.0 / 3f64.sqrt(),
                edges: PerEdge { features: Some(features), bias: Some(bias), mask: Some(mask) },
            }
        }

        /// Without edge features, which tie the values' width to the keys'.
        fn featureless(&self) -> DotAttention<'_> {
            let attention = self.attention();
            let edges = PerEdge { features: None, ..attention.edges };
            DotAttention { edges, ..attention }
        }
    }

    #[test]
    fn every_gradient_is_a_slope() {
        let (a, dy) = (graph(), matrix(26, 5, 6));
        let inputs = Inputs::new(a.nnz());
        let grads = inputs.attention().backward(&a, &dy).unwrap();
        let features = grads.features.unwrap();
        let expected = [grads.queries, grads.keys, grads.values, grads.bias, features];
        for (at, grad) in expected.iter().enumerate() {
            assert_matrix_gradient(&inputs.0[at], grad, |x| {
                dot(&inputs.with(at, x).attention().forward(&a).unwrap(), &dy)
            });
        }
    }

    #[test]
    fn values_may_have_a_width_of_their_own() {
        let (a, dy) = (graph(), matrix(26, 5, 4));
        let inputs = Inputs::new(a.nnz()).with(2, &matrix(27, 4, 4));
        let grads = inputs.featureless().backward(&a, &dy).unwrap();
        for (at, grad) in [grads.queries, grads.keys, grads.values].iter().enumerate() {
            assert_matrix_gradient(&inputs.0[at], grad, |x| {
                dot(&inputs.with(at, x).featureless().forward(&a).unwrap(), &dy)
            });
        }
        assert!(grads.features.is_none());
        assert!(inputs.attention().forward(&a).is_err());
    }

    #[test]
    fn known_values() {
        // Dots 2·1 and 2·3, halved: 1 and 3.
        let a = csr(2, &[&[(0, 5.0), (1, 5.0)], &[]]);
        let (queries, keys) = (dense(&[[2.0], [7.0]]), dense(&[[1.0], [3.0]]));
        let values = dense(&[[10.0], [20.0]]);
        let attention = DotAttention {
            queries: &queries,
            keys: &keys,
            values: &values,
            heads: 1,
            scale: 0.5,
            edges: PerEdge::default(),
        };
        let p = 1.0 / (1.0 + 2f64.exp());
        assert_close(&flat(&attention.forward(&a).unwrap()), &[20.0 - 10.0 * p, 0.0]);
        // Features −1 and −3 take the keys to 0, and are added to the values.
        let features = dense(&[[-1.0], [-3.0]]);
        let edges = PerEdge { features: Some(&features), ..attention.edges };
        let level = DotAttention { edges, ..attention };
        assert_close(&flat(&level.forward(&a).unwrap()), &[13.0, 0.0]);
    }

    #[test]
    fn without_edges_or_channels() {
        let (empty, inputs) = (Csr::empty(5, 4).unwrap(), Inputs::new(0));
        assert_eq!(inputs.attention().forward(&empty).unwrap(), Dense::zeros(5, 6));
        let (target, source) = (Dense::zeros(5, 0), Dense::zeros(4, 0));
        let attention = DotAttention {
            queries: &target,
            keys: &source,
            values: &source,
            heads: 2,
            scale: 1.0,
            edges: PerEdge::default(),
        };
        assert_eq!(attention.forward(&graph()).unwrap(), target);
        assert_eq!(attention.backward(&graph(), &target).unwrap().values, source);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let a = graph();
        let (inputs, wrong) = (Inputs::new(a.nnz()), matrix(1, 1, 1));
        for at in 0..6 {
            assert!(inputs.with(at, &wrong).attention().forward(&a).is_err(), "{at}");
        }
        assert!(inputs.attention().backward(&a, &wrong).is_err());
        for heads in [0, 4] {
            let attention = DotAttention { heads, ..inputs.attention() };
            assert!(attention.forward(&a).is_err());
        }
    }
}
