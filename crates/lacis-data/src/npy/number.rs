//! Raw items of an array → numbers of a wanted type, in one pass.
//!
//! [`Number`] is the wanted type, [`Raw`] the stored one; [`convert`] joins them for a [`Dtype`].

use bytemuck::Pod;

use super::header::{Dtype, Endian, Kind};

/// A type that array items can be turned into, where their value allows.
pub trait Number: Pod + Send + Sync {
    /// What such numbers are called in an error.
    const WANTED: &'static str;
    /// Whether floating-point items can be turned into it.
    const FROM_FLOATS: bool = false;
    /// From a signed integer.
    fn from_i64(value: i64) -> Option<Self>;
    /// From an unsigned integer.
    fn from_u64(value: u64) -> Option<Self>;
    /// From a floating-point number.
    fn from_f64(_value: f64) -> Option<Self> {
        None
    }
}

macro_rules! integer {
    ($($type:ty: $wanted:literal),*) => {$(
        impl Number for $type {
            const WANTED: &'static str = $wanted;
            #[inline]
            fn from_i64(value: i64) -> Option<Self> {
                Self::try_from(value).ok()
            }
            #[inline]
            fn from_u64(value: u64) -> Option<Self> {
                Self::try_from(value).ok()
            }
        }
    )*};
}

macro_rules! float {
    ($($type:ty),*) => {$(
        impl Number for $type {
            const WANTED: &'static str = "a number";
            const FROM_FLOATS: bool = true;
            #[inline]
            fn from_i64(value: i64) -> Option<Self> {
                Some(value as $type)
            }
            #[inline]
            fn from_u64(value: u64) -> Option<Self> {
                Some(value as $type)
            }
            #[inline]
            fn from_f64(value: f64) -> Option<Self> {
                Some(value as $type)
            }
        }
    )*};
}

integer!(
    u8: "an integer from 0 to 255",
    u32: "an index from 0 to 4294967295",
    u64: "an integer from 0 on",
    i32: "an integer of 32 bits",
    i64: "an integer of 64 bits"
);
float!(f32, f64);

/// A stored item.
trait Raw: Copy + std::fmt::Display {
    const SIZE: usize;
    fn read(bytes: &[u8], endian: Endian) -> Self;
    fn to<T: Number>(self) -> Option<T>;
}

macro_rules! raw {
    ($($type:ty => $via:ident as $wide:ty),*) => {$(
        impl Raw for $type {
            const SIZE: usize = size_of::<$type>();
            #[inline]
            fn read(bytes: &[u8], endian: Endian) -> Self {
                let mut item = [0; size_of::<$type>()];
                item.copy_from_slice(bytes);
                match endian {
                    Endian::Little => Self::from_le_bytes(item),
                    Endian::Big => Self::from_be_bytes(item),
                }
            }
            #[inline]
            fn to<T: Number>(self) -> Option<T> {
                T::$via(self as $wide)
            }
        }
    )*};
}

raw!(i8 => from_i64 as i64, i16 => from_i64 as i64, i32 => from_i64 as i64, i64 => from_i64 as i64);
raw!(u8 => from_u64 as u64, u16 => from_u64 as u64, u32 => from_u64 as u64, u64 => from_u64 as u64);
raw!(f32 => from_f64 as f64, f64 => from_f64 as f64);

/// A half-precision number, widened as it is read.
#[derive(Clone, Copy)]
struct Half(f32);

impl std::fmt::Display for Half {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Raw for Half {
    const SIZE: usize = 2;
    fn read(bytes: &[u8], endian: Endian) -> Self {
        Half(widen_half(u16::read(bytes, endian)))
    }
    fn to<T: Number>(self) -> Option<T> {
        T::from_f64(f64::from(self.0))
    }
}

/// The number that the bits of an IEEE half stand for.
fn widen_half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (bits >> 10 & 0x1f, f32::from(bits & 0x3ff) / 1024.0);
    sign * match exponent {
        0 => fraction * 2f32.powi(-14),
        0x1f if fraction == 0.0 => f32::INFINITY,
        0x1f => f32::NAN,
        _ => (1.0 + fraction) * 2f32.powi(i32::from(exponent) - 15),
    }
}

/// A byte that is zero or not.
#[derive(Clone, Copy)]
struct Truth(bool);

impl std::fmt::Display for Truth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Raw for Truth {
    const SIZE: usize = 1;
    fn read(bytes: &[u8], _: Endian) -> Self {
        Truth(bytes[0] != 0)
    }
    fn to<T: Number>(self) -> Option<T> {
        T::from_u64(u64::from(self.0))
    }
}

/// An item that has no equal in the wanted type: its position and its text.
pub type Misfit = (usize, String);

/// Whether items of this type can be turned into `T` at all.
pub fn is_convertible<T: Number>(dtype: Dtype) -> bool {
    match dtype.kind {
        Kind::Bool | Kind::Int | Kind::Uint => true,
        Kind::Float => T::FROM_FLOATS,
        Kind::Bytes | Kind::Text | Kind::Object => false,
    }
}

/// The items of `raw`, one per slot of `out`.
///
/// # Errors
/// The first item that does not fit.
///
/// # Panics
/// When the type [`is_convertible`] says no to.
pub fn convert<T: Number>(dtype: Dtype, raw: &[u8], out: &mut [T]) -> Result<(), Misfit> {
    let endian = dtype.endian;
    match (dtype.kind, dtype.size) {
        (Kind::Bool, _) => each::<Truth, T>(raw, out, endian),
        (Kind::Int, 1) => each::<i8, T>(raw, out, endian),
        (Kind::Int, 2) => each::<i16, T>(raw, out, endian),
        (Kind::Int, 4) => each::<i32, T>(raw, out, endian),
        (Kind::Int, 8) => each::<i64, T>(raw, out, endian),
        (Kind::Uint, 1) => each::<u8, T>(raw, out, endian),
        (Kind::Uint, 2) => each::<u16, T>(raw, out, endian),
        (Kind::Uint, 4) => each::<u32, T>(raw, out, endian),
        (Kind::Uint, 8) => each::<u64, T>(raw, out, endian),
        (Kind::Float, 2) => each::<Half, T>(raw, out, endian),
        (Kind::Float, 4) => each::<f32, T>(raw, out, endian),
        (Kind::Float, 8) => each::<f64, T>(raw, out, endian),
        _ => panic!("{dtype} holds no numbers"),
    }
}

fn each<S: Raw, T: Number>(raw: &[u8], out: &mut [T], endian: Endian) -> Result<(), Misfit> {
    // Two loops, so that neither asks for the order again and again.
    match endian {
        Endian::Little => fill::<S, T>(raw, out, |bytes| S::read(bytes, Endian::Little)),
        Endian::Big => fill::<S, T>(raw, out, |bytes| S::read(bytes, Endian::Big)),
    }
}

#[inline(always)]
fn fill<S: Raw, T: Number>(
    raw: &[u8],
    out: &mut [T],
    read: impl Fn(&[u8]) -> S,
) -> Result<(), Misfit> {
    for (at, (bytes, slot)) in raw.chunks_exact(S::SIZE).zip(out).enumerate() {
        let item = read(bytes);
        match item.to() {
            Some(value) => *slot = value,
            None => return Err((at, item.to_string())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted<T: Number>(descr: &str, raw: &[u8]) -> Result<Vec<T>, Misfit> {
        let dtype = Dtype::parse(descr).unwrap();
        let mut out = vec![T::zeroed(); raw.len() / dtype.size];
        convert(dtype, raw, &mut out).map(|()| out)
    }

    #[test]
    fn every_type_is_read_in_both_byte_orders() {
        for (little, big, raw) in [
            ("<i2", ">i2", vec![3, 0, 2, 1]),
            ("<u4", ">u4", vec![3, 0, 0, 0, 2, 1, 0, 0]),
            ("<i8", ">i8", [3i64, 258].map(i64::to_le_bytes).concat()),
            ("<f4", ">f4", [3f32, 258.0].map(f32::to_le_bytes).concat()),
            ("<f8", ">f8", [3f64, 258.0].map(f64::to_le_bytes).concat()),
            ("<f2", ">f2", vec![0x00, 0x42, 0x08, 0x5c]),
        ] {
            assert_eq!(converted::<f32>(little, &raw).unwrap(), [3.0, 258.0], "{little}");
            let size = Dtype::parse(big).unwrap().size;
            let turned: Vec<u8> =
                raw.chunks(size).flat_map(|item| item.iter().rev().copied()).collect();
            assert_eq!(converted::<f32>(big, &turned).unwrap(), [3.0, 258.0], "{big}");
        }
        assert_eq!(converted::<i64>("|i1", &[255, 1]).unwrap(), [-1, 1]);
        assert_eq!(converted::<u8>("|b1", &[0, 7]).unwrap(), [0, 1]);
    }

    #[test]
    fn halves_widen_exactly() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x7c00, f32::INFINITY),
        ] {
            assert_eq!(widen_half(bits), value);
        }
        assert!(widen_half(0x7e00).is_nan());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let raw = [5i32, -1].map(i32::to_le_bytes).concat();
        assert_eq!(converted::<u32>("<i4", &raw), Err((1, "-1".to_owned())));
        let raw = [5i64, 1 << 32].map(i64::to_le_bytes).concat();
        assert_eq!(converted::<u32>("<i8", &raw), Err((1, "4294967296".to_owned())));
        assert!(converted::<i64>("<u8", &[255; 8]).is_err());
        assert!(!is_convertible::<u32>(Dtype::parse("<f4").unwrap()));
        assert!(!is_convertible::<f32>(Dtype::parse("<U4").unwrap()));
    }
}
