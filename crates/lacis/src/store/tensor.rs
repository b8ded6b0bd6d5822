//! [`Tensor`]: numbers of one of four types, with a shape.

use bytemuck::Pod;
use lacis_core::error::same_size;
use lacis_core::{Buffer, Dense, Element, Result, bf16};

/// The types that tensors are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorType {
    /// IEEE single precision.
    F32,
    /// The upper half of a single.
    Bf16,
    /// IEEE double precision.
    F64,
    /// Signed whole numbers.
    I64,
}

impl TensorType {
    /// Every type there is, with the name that safetensors has for it and its bytes.
    pub(super) const TABLE: [(TensorType, &'static str, usize); 4] = [
        (TensorType::F64, "F64", 8),
        (TensorType::I64, "I64", 8),
        (TensorType::F32, "F32", 4),
        (TensorType::Bf16, "BF16", 2),
    ];

    /// The name in files.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        self.row().2
    }

    fn row(self) -> (TensorType, &'static str, usize) {
        TensorType::TABLE.into_iter().find(|row| row.0 == self).expect("the table has every type")
    }
}

/// A Rust type that tensors are stored as.
pub trait Scalar: Pod + Send + Sync {
    /// The type's name.
    const TYPE: TensorType;
}

impl Scalar for f32 {
    const TYPE: TensorType = TensorType::F32;
}
impl Scalar for bf16 {
    const TYPE: TensorType = TensorType::Bf16;
}
impl Scalar for f64 {
    const TYPE: TensorType = TensorType::F64;
}
impl Scalar for i64 {
    const TYPE: TensorType = TensorType::I64;
}

/// Numbers with a shape. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Tensor {
    kind: TensorType,
    shape: Vec<usize>,
    numbers: Numbers,
}

/// The numbers, by type, as a buffer keeps its element's type.
#[derive(Clone, Debug)]
pub(super) enum Numbers {
    /// Single precision.
    F32(Buffer<f32>),
    /// Half of a single.
    Bf16(Buffer<bf16>),
    /// Double precision.
    F64(Buffer<f64>),
    /// Whole numbers.
    I64(Buffer<i64>),
}

impl Numbers {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Numbers::F32(numbers) => bytemuck::cast_slice(numbers),
            Numbers::Bf16(numbers) => bytemuck::cast_slice(numbers),
            Numbers::F64(numbers) => bytemuck::cast_slice(numbers),
            Numbers::I64(numbers) => bytemuck::cast_slice(numbers),
        }
    }

    /// A copy of bytes that are as many as whole numbers take.
    pub(super) fn from_bytes(kind: TensorType, bytes: &[u8]) -> Result<Self> {
        Ok(match kind {
            TensorType::F32 => Numbers::F32(copied(bytes)?),
            TensorType::Bf16 => Numbers::Bf16(copied(bytes)?),
            TensorType::F64 => Numbers::F64(copied(bytes)?),
            TensorType::I64 => Numbers::I64(copied(bytes)?),
        })
    }

    /// Of a buffer whose type's name is known.
    fn new<T: Scalar>(numbers: Buffer<T>) -> Self {
        match T::TYPE {
            TensorType::F32 => Numbers::F32(numbers.reinterpreted()),
            TensorType::Bf16 => Numbers::Bf16(numbers.reinterpreted()),
            TensorType::F64 => Numbers::F64(numbers.reinterpreted()),
            TensorType::I64 => Numbers::I64(numbers.reinterpreted()),
        }
    }
}

/// Files do not align what they hold, so it is copied.
fn copied<T: Pod>(bytes: &[u8]) -> Result<Buffer<T>> {
    let mut numbers = Buffer::<T>::try_zeroed(bytes.len() / size_of::<T>())?;
    bytemuck::cast_slice_mut(numbers.make_mut()).copy_from_slice(bytes);
    Ok(numbers)
}

impl Tensor {
    /// Numbers in a shape, row by row.
    ///
    /// # Errors
    /// When the shape has more or fewer of them.
    pub fn new<T: Scalar>(shape: &[usize], numbers: impl Into<Buffer<T>>) -> Result<Self> {
        let numbers = numbers.into();
        let size = shape.iter().try_fold(1usize, |size, &n| size.checked_mul(n));
        same_size("tensor", "numbers", size.unwrap_or(usize::MAX), numbers.len())?;
        Ok(Tensor { kind: T::TYPE, shape: shape.to_vec(), numbers: Numbers::new(numbers) })
    }

    /// A matrix as it is; it is copied only where its rows are not one after another.
    pub fn matrix<T: Scalar + Element>(x: &Dense<T>) -> Self {
        let shape = [x.n_rows(), x.n_cols()];
        let len = shape[0] * shape[1];
        let packed = x.stride() == x.n_cols() || x.n_rows() < 2;
        let numbers = if packed {
            x.data().clone().truncated(len)
        } else {
            let rows: Vec<T> = x.rows().flatten().copied().collect();
            rows.into()
        };
        Tensor::new(&shape, numbers).expect("a matrix has its shape")
    }

    pub(super) fn from_parts(kind: TensorType, shape: Vec<usize>, numbers: Numbers) -> Self {
        Tensor { kind, shape, numbers }
    }

    /// The numbers' type.
    pub fn kind(&self) -> TensorType {
        self.kind
    }

    /// The size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The memory.
    pub fn bytes(&self) -> &[u8] {
        self.numbers.bytes()
    }

    /// The numbers, if they are of this type.
    pub fn numbers<T: Scalar>(&self) -> Option<Buffer<T>> {
        (T::TYPE == self.kind).then(|| match self.numbers.clone() {
            Numbers::F32(numbers) => numbers.reinterpreted(),
            Numbers::Bf16(numbers) => numbers.reinterpreted(),
            Numbers::F64(numbers) => numbers.reinterpreted(),
            Numbers::I64(numbers) => numbers.reinterpreted(),
        })
    }
}

impl PartialEq for Tensor {
    /// Same type, shape and bits.
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.shape, self.bytes()) == (other.kind, &other.shape, other.bytes())
    }
}
