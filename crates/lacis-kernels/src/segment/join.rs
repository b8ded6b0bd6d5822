//! How two numbers become one.

use lacis_core::reference::Reduce;

use crate::real::Real;

/// A reduction of two.
pub(super) trait Join: Copy + Send + Sync {
    /// What joining changes nothing of.
    fn neutral<F: Real>() -> F;
    /// The two as one.
    fn join<F: Real>(a: F, b: F) -> F;
}

macro_rules! join {
    ($type:ident, $neutral:ident, $join:expr) => {
        #[derive(Clone, Copy)]
        pub(super) struct $type;

        impl Join for $type {
            #[inline(always)]
            fn neutral<F: Real>() -> F {
                F::$neutral
            }
            #[inline(always)]
            fn join<F: Real>(a: F, b: F) -> F {
                $join(a, b)
            }
        }
    };
}

join!(Sum, ZERO, |a: F, b: F| a + b);
// The first choice is one instruction, which takes `b` where one is NaN; NaN, once met, stays.
join!(Max, NEG_INFINITY, |a: F, b: F| {
    let greater = if a > b { a } else { b };
    if a.is_nan() { a } else { greater }
});
join!(Min, INFINITY, |a: F, b: F| {
    let lesser = if a < b { a } else { b };
    if a.is_nan() { a } else { lesser }
});
join!(Mul, ONE, |a: F, b: F| a * b);

/// The result for no numbers.
#[inline(always)]
pub(super) fn empty<F: Real>(reduce: Reduce) -> F {
    if reduce == Reduce::Mul { F::ONE } else { F::ZERO }
}
