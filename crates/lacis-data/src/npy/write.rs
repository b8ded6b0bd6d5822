//! Writing `.npy`: version 1, C order, the data on a 64-byte boundary.

use std::io::{self, Write};

use bytemuck::NoUninit;

/// A Rust type that numpy knows too.
pub trait Item: NoUninit {
    /// numpy's letter and size for it.
    const CODE: &'static str;
}

macro_rules! item {
    ($($type:ty: $code:literal),*) => {$(
        impl Item for $type {
            const CODE: &'static str = $code;
        }
    )*};
}

item!(f32: "f4", f64: "f8", i32: "i4", i64: "i8", u8: "u1", u32: "u4", u64: "u8", bool: "b1");

/// The byte order of this machine, in which slices are written.
const NATIVE: char = if cfg!(target_endian = "big") { '>' } else { '<' };

/// Writes an array of this shape.
///
/// # Errors
/// When the sink refuses, or the shape is not that of the data.
pub fn write<T: Item>(out: &mut impl Write, shape: &[usize], data: &[T]) -> io::Result<()> {
    let len = shape.iter().try_fold(1usize, |len, &extent| len.checked_mul(extent));
    if len != Some(data.len()) {
        let problem = format!("{} items do not make an array of shape {shape:?}", data.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    write_header(out, &descr::<T>(), shape)?;
    out.write_all(bytemuck::cast_slice(data))
}

/// numpy's name for a type of this machine.
pub fn descr<T: Item>() -> String {
    let order = if size_of::<T>() == 1 { '|' } else { NATIVE };
    format!("{order}{}", T::CODE)
}

/// Items as the bytes that stand in a file.
pub fn bytes_of<T: Item>(items: &[T]) -> &[u8] {
    bytemuck::cast_slice(items)
}

/// Writes what comes before the data.
///
/// # Errors
/// When the sink refuses.
pub fn write_header(out: &mut impl Write, descr: &str, shape: &[usize]) -> io::Result<()> {
    const ALIGNMENT: usize = 64;
    const BEFORE_TEXT: usize = 10;
    let mut extents: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
    if shape.len() == 1 {
        extents.pop();
    } else {
        extents.truncate(extents.len().saturating_sub(2));
    }
    let mut text =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({extents}), }}");
    let padded = (BEFORE_TEXT + text.len() + 1).next_multiple_of(ALIGNMENT) - BEFORE_TEXT;
    text.extend(std::iter::repeat_n(' ', padded - 1 - text.len()));
    text.push('\n');
    let length = u16::try_from(padded)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the shape has too many axes"))?;
    out.write_all(b"\x93NUMPY\x01\x00")?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_padded_and_shapes_checked() {
        for shape in [&[][..], &[3], &[2, 5], &[0, 7, 1]] {
            let mut bytes = Vec::new();
            write_header(&mut bytes, "<f4", shape).unwrap();
            assert_eq!(bytes.len() % 64, 0);
            assert_eq!(bytes.last(), Some(&b'\n'));
            let header = crate::npy::Header::parse(&bytes[10..]).unwrap();
            assert_eq!(header.shape, shape);
        }
        assert!(write(&mut Vec::new(), &[2, 2], &[1.0f32; 3]).is_err());
        let mut bytes = Vec::new();
        write(&mut bytes, &[2], &[true, false]).unwrap();
        assert_eq!(bytes[bytes.len() - 2..], [1, 0]);
    }
}
