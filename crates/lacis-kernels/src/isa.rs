//! Instruction sets: one body per algorithm, compiled for each, chosen at run time.
//!
//! A body is ordinary safe Rust, `#[inline(always)]`, generic over [`Arith`]; `per_isa!` wraps it
//! in one function per instruction set, inside which the compiler may use it. An [`Isa`] can only
//! come from detection, so holding one is the proof that this CPU has it.

use crate::real::Real;

/// An instruction set that this CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(pub(crate) Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What every CPU of this architecture has; on ARM that includes NEON.
    Baseline,
}

impl Isa {
    /// All that this CPU has, the widest first; the last works everywhere.
    pub fn available() -> Vec<Isa> {
        let mut levels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let avx2 = has!("avx2") && has!("fma");
            if avx2 && has!("avx512f") && has!("avx512vl") && has!("avx512bw") && has!("avx512dq") {
                levels.push(Level::Avx512);
            }
            if avx2 {
                levels.push(Level::Avx2);
            }
        }
        levels.push(Level::Baseline);
        levels.into_iter().map(Isa).collect()
    }

    /// The widest that this CPU has.
    pub fn best() -> Isa {
        Isa::available()[0]
    }

    /// The one of this name, where this CPU has it.
    pub fn named(name: &str) -> Option<Isa> {
        Isa::available().into_iter().find(|isa| isa.name() == name)
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            Level::Baseline => "baseline",
        }
    }
}

/// How `a·b + c` is computed: fused where there is an instruction for it. Without one,
/// `f32::mul_add` is a library call, fifty times slower than a product and a sum.
pub trait Arith: Copy {
    /// `a·b + c`.
    fn mul_add<F: Real>(a: F, b: F, c: F) -> F;
}

/// One rounding.
#[derive(Clone, Copy)]
pub struct Fused;

/// Two roundings.
#[derive(Clone, Copy)]
pub struct Split;

impl Arith for Fused {
    #[inline(always)]
    fn mul_add<F: Real>(a: F, b: F, c: F) -> F {
        a.fused(b, c)
    }
}

impl Arith for Split {
    #[inline(always)]
    fn mul_add<F: Real>(a: F, b: F, c: F) -> F {
        a * b + c
    }
}

/// Compiles a body once per instruction set.
///
/// `per_isa!(fn name<[G: Bound, …], [V, …]>(arg: Type) = body)` makes
/// `fn name<G, …, const V: usize, …>(Isa, Type)` of
/// `fn body<M: Arith, G, …, const V: usize, …>(arg: Type)`; either list may be empty, and a result
/// type may follow the argument. `= body, avx512 = other` takes another body for AVX-512: one that
/// is compiled for it alone, and so may use its instructions by name.
macro_rules! per_isa {
    ($vis:vis fn $name:ident<[$($G:ident: $bound:path),*], [$($V:ident),*]>
        ($arg:ident: $type:ty) $(-> $result:ty)? = $body:ident) => {
        $crate::isa::per_isa!($vis fn $name<[$($G: $bound),*], [$($V),*]>
            ($arg: $type) $(-> $result)? = $body, avx512 = $body);
    };
    ($vis:vis fn $name:ident<[$($G:ident: $bound:path),*], [$($V:ident),*]>
        ($arg:ident: $type:ty) $(-> $result:ty)? = $body:ident, avx512 = $wide:ident) => {
        #[allow(unsafe_code)]
        $vis fn $name<$($G: $bound,)* $(const $V: usize,)*>(isa: $crate::isa::Isa, $arg: $type)
            $(-> $result)? {
            use $crate::isa::{Fused, Level, Split};
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
            fn avx512<$($G: $bound,)* $(const $V: usize,)*>($arg: $type) $(-> $result)? {
                $wide::<Fused, $($G,)* $($V,)*>($arg)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$($G: $bound,)* $(const $V: usize,)*>($arg: $type) $(-> $result)? {
                $body::<Fused, $($G,)* $($V,)*>($arg)
            }
            match isa.0 {
                // SAFETY: `isa` exists, so detection found these features on this CPU.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => unsafe { avx512::<$($G,)* $($V,)*>($arg) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => unsafe { avx2::<$($G,)* $($V,)*>($arg) },
                #[cfg(target_arch = "aarch64")]
                Level::Baseline => $body::<Fused, $($G,)* $($V,)*>($arg),
                #[cfg(not(target_arch = "aarch64"))]
                Level::Baseline => $body::<Split, $($G,)* $($V,)*>($arg),
            }
        }
    };
}
pub(crate) use per_isa;
