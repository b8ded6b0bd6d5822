//! [`Reduce`]: many numbers to one, and the derivative in each of them.

/// How a node's messages, or a segment's rows, become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// `Σ m`; 0 for none.
    Sum,
    /// `Σ m / count`; 0 for none.
    Mean,
    /// The largest; 0 for none. NaN if there is one.
    Max,
    /// The smallest; 0 for none. NaN if there is one.
    Min,
    /// `Π m`; 1 for none.
    Mul,
}

/// Who gets the gradient when several are largest (or smallest).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// Each of them an equal part.
    SplitEvenly,
    /// The first of them everything, as `torch.sparse.mm` and torch_sparse do.
    FirstArgument,
    /// An equal part each, and where the result is 0 one more part is lost to the zero that the
    /// output began as: `scatter_reduce(include_self=False)` of torch onto zeros counts it, and so
    /// does torch_geometric's `scatter`.
    SplitWithInitialZero,
}

impl Reduce {
    /// All of them.
    pub const ALL: [Reduce; 5] = [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min, Reduce::Mul];

    /// The numbers as one.
    pub fn of(self, items: &[f64]) -> f64 {
        match self {
            Reduce::Mul => items.iter().product(),
            _ if items.is_empty() => 0.0,
            Reduce::Sum => items.iter().sum(),
            Reduce::Mean => items.iter().sum::<f64>() / items.len() as f64,
            Reduce::Max | Reduce::Min => self.argument(items).map_or(0.0, |at| items[at]),
        }
    }

    /// Where the first largest or smallest number stands, or the last NaN if there is one; `None`
    /// for no numbers, and for reduces that do not choose one.
    pub fn argument(self, items: &[f64]) -> Option<usize> {
        let better: fn(f64, f64) -> bool = match self {
            Reduce::Max => |new, old| new > old,
            Reduce::Min => |new, old| new < old,
            Reduce::Sum | Reduce::Mean | Reduce::Mul => return None,
        };
        let mut best = (!items.is_empty()).then_some(0)?;
        for (at, &item) in items.iter().enumerate() {
            if better(item, items[best]) || item.is_nan() {
                best = at;
            }
        }
        Some(best)
    }

    /// `∂ reduce(m) / ∂ m` for each number. Of a product it is that of the others, also where one
    /// is infinite or NaN; torch divides the whole by it there, which gives NaN.
    pub fn derivative(self, items: &[f64], ties: Ties) -> Vec<f64> {
        let others = |at: usize| items[..at].iter().chain(&items[at + 1..]).product();
        match self {
            Reduce::Sum => vec![1.0; items.len()],
            Reduce::Mean => vec![1.0 / items.len() as f64; items.len()],
            Reduce::Mul => (0..items.len()).map(others).collect(),
            Reduce::Max | Reduce::Min => self.shares(items, ties),
        }
    }

    /// What each of the numbers gets of the gradient of the largest or smallest.
    fn shares(self, items: &[f64], ties: Ties) -> Vec<f64> {
        let chosen = self.argument(items);
        let result = self.of(items);
        if ties == Ties::FirstArgument {
            return (0..items.len()).map(|at| f64::from(Some(at) == chosen)).collect();
        }
        let mut parts = items.iter().filter(|&&item| item == result).count() as f64;
        if ties == Ties::SplitWithInitialZero && result == 0.0 {
            parts += 1.0;
        }
        // Nothing equals NaN: 0 / 0 makes the gradient NaN too, as torch has it.
        items.iter().map(|&item| f64::from(item == result) / parts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{assert_gradient, numbers};
    use super::*;

    #[test]
    fn known_values() {
        let items = [3.0, -1.0, 4.0];
        let found = Reduce::ALL.map(|reduce| reduce.of(&items));
        assert_eq!(found, [6.0, 2.0, 4.0, -1.0, -12.0]);
        assert_eq!(Reduce::ALL.map(|reduce| reduce.of(&[])), [0.0, 0.0, 0.0, 0.0, 1.0]);
        assert!(Reduce::Sum.of(&[]).is_sign_positive());
        assert_eq!(Reduce::ALL.map(|reduce| reduce.of(&[-5.0])), [-5.0; 5]);
    }

    #[test]
    fn nan_wins() {
        let items = [1.0, f64::NAN, 2.0];
        for reduce in Reduce::ALL {
            assert!(reduce.of(&items).is_nan());
        }
        assert_eq!(Reduce::Max.argument(&items), Some(1));
        assert_eq!(Reduce::Min.argument(&[f64::NAN, 1.0]), Some(0));
    }

    #[test]
    fn derivatives_are_slopes() {
        let items = numbers(1, 5);
        for reduce in Reduce::ALL {
            for ties in [Ties::SplitEvenly, Ties::FirstArgument, Ties::SplitWithInitialZero] {
                let grad = reduce.derivative(&items, ties);
                assert_gradient(&items, &grad, |items| reduce.of(items));
            }
            assert!(reduce.derivative(&[], Ties::SplitEvenly).is_empty());
        }
    }

    #[test]
    fn a_product_with_zeros_has_a_finite_gradient() {
        assert_eq!(Reduce::Mul.derivative(&[0.0, 2.0, 3.0], Ties::SplitEvenly), [6.0, 0.0, 0.0]);
        assert_eq!(Reduce::Mul.derivative(&[0.0, 2.0, 0.0], Ties::SplitEvenly), [0.0; 3]);
    }

    #[test]
    fn ties_are_split_or_given_to_the_first() {
        let items = [0.0, 1.0, 1.0];
        assert_eq!(Reduce::Max.derivative(&items, Ties::SplitEvenly), [0.0, 0.5, 0.5]);
        assert_eq!(Reduce::Max.derivative(&items, Ties::FirstArgument), [0.0, 1.0, 0.0]);
        assert_eq!(Reduce::Max.argument(&items), Some(1));
        let items = [0.0, 2.0, 0.0];
        assert_eq!(Reduce::Min.derivative(&items, Ties::SplitEvenly), [0.5, 0.0, 0.5]);
        assert_eq!(Reduce::Min.derivative(&items, Ties::FirstArgument), [1.0, 0.0, 0.0]);
        let third = 1.0 / 3.0;
        let found = Reduce::Min.derivative(&items, Ties::SplitWithInitialZero);
        assert_eq!(found, [third, 0.0, third]);
        assert_eq!(Reduce::Max.derivative(&items, Ties::SplitWithInitialZero), [0.0, 1.0, 0.0]);
    }
}
