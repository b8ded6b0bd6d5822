//! Memory for values, and values as matrices.

use bytemuck::Pod;
use lacis_core::{Buffer, CsrView, Error, Features, Result, bf16};
use lacis_kernels::{Mat, MatMut, Stored};
use lacis_plan::plan::{Place, Plan, Step, ValueId};

use super::{Context, Executor};
use crate::levels::Levels;
use crate::pairs::Pairs;
use crate::params::Params;

/// What rows may be stored in; what is computed with is f32 either way.
pub(super) trait Held: Stored<Sum = f32> + Pod {
    /// Whether it is two bytes.
    const HALF: bool;

    /// The nodes' features, where they are dense.
    fn features(levels: &Levels) -> Option<Mat<'_, Self>>;
    /// Weights, where they are stored so.
    fn weights(numbers: &[f32]) -> Option<&[Self]>;
}

impl Held for f32 {
    const HALF: bool = false;

    fn features(levels: &Levels) -> Option<Mat<'_>> {
        match levels.features() {
            Features::Dense(x) => Some(Mat::from(x)),
            Features::Sparse(_) => None,
        }
    }

    fn weights(numbers: &[f32]) -> Option<&[f32]> {
        Some(numbers)
    }
}

impl Held for bf16 {
    const HALF: bool = true;

    fn features(levels: &Levels) -> Option<Mat<'_, bf16>> {
        levels.half_features().map(Mat::from)
    }

    fn weights(_: &[f32]) -> Option<&[bf16]> {
        None
    }
}

/// Buffers that grow to the largest value they ever held.
pub(super) struct Slots(Vec<Buffer<f32>>);

impl Slots {
    pub fn new(count: usize) -> Self {
        Slots((0..count).map(|_| Buffer::zeroed(0)).collect())
    }

    pub fn grow(&mut self, lens: &[usize]) -> Result<()> {
        for (slot, &len) in self.0.iter_mut().zip(lens) {
            if slot.len() < len {
                // The old one goes first: what it held is not needed.
                *slot = Buffer::zeroed(0);
                *slot = Buffer::try_zeroed(len)?;
            }
        }
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        self.0.iter().map(|slot| slot.len() * size_of::<f32>()).sum()
    }

    pub fn get(&self, slot: usize) -> &[f32] {
        self.0[slot].as_slice()
    }

    /// Takes a slot out, to be written while others are read.
    pub fn take(&mut self, slot: usize) -> Buffer<f32> {
        std::mem::replace(&mut self.0[slot], Buffer::zeroed(0))
    }

    pub fn put(&mut self, slot: usize, buffer: Buffer<f32>) {
        self.0[slot] = buffer;
    }
}

/// A slot taken out of an executor, with the shape of the value it is to hold.
pub(super) struct Taken {
    slot: usize,
    buffer: Buffer<f32>,
    shape: [usize; 2],
    len: usize,
}

impl Taken {
    pub fn mat<T: Held>(&mut self) -> Result<MatMut<'_, T>> {
        let [rows, cols] = self.shape;
        let numbers = bytemuck::cast_slice_mut(self.buffer.make_mut());
        MatMut::new(&mut numbers[..rows * cols], rows, cols, cols)
    }

    pub fn slice<T: Held>(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(self.buffer.make_mut())[..self.len]
    }
}

impl Executor {
    pub(super) fn shape(&self, value: ValueId, context: &Context<'_>) -> [usize; 2] {
        self.plan.values[value].shape.map(|dim| match dim {
            lacis_plan::Dim::Pairs => context.pairs.map_or(0, Pairs::len),
            lacis_plan::Dim::Graphs => context.graphs.map_or(0, |ptr| ptr.len() - 1),
            dim => context.levels.size_of(dim),
        })
    }

    /// A dense value.
    pub(super) fn mat<'e, T: Held>(
        &'e self,
        value: ValueId,
        context: &'e Context<'_>,
        params: &'e Params,
    ) -> Result<Mat<'e, T>> {
        let [rows, cols] = self.shape(value, context);
        let missing = || no_matrix(&self.plan, value);
        if self.plan.values[value].half != T::HALF {
            return Err(missing());
        }
        match self.plan.values[value].place {
            Place::Slot(slot) => {
                let numbers = bytemuck::cast_slice(self.slots.get(slot));
                Mat::new(&numbers[..rows * cols], rows, cols, cols)
            }
            Place::Param(param) => {
                let dense = params.get(param);
                let numbers = T::weights(dense.data()).ok_or_else(missing)?;
                Mat::new(numbers, dense.n_rows(), dense.n_cols(), dense.stride())
            }
            Place::Features => T::features(context.levels).ok_or_else(missing),
            Place::View { of, from } => {
                self.mat(of, context, params)?.rows(0..rows).columns(from, cols)
            }
            _ => Err(no_matrix(&self.plan, value)),
        }
    }

    /// A row of numbers: a bias, or the diagonal of degrees.
    pub(super) fn vector<'e>(
        &'e self,
        value: ValueId,
        context: &'e Context<'_>,
        params: &'e Params,
    ) -> Result<&'e [f32]> {
        match self.plan.values[value].place {
            Place::Degrees { graph, level, half_power } => {
                Ok(context.levels.degrees(graph, level, half_power))
            }
            // The diagonal of a computed product: one number per row.
            Place::Slot(slot) if self.is_diagonal(value) => {
                Ok(&self.slots.get(slot)[..self.shape(value, context)[0]])
            }
            _ => Ok(self.mat::<f32>(value, context, params)?.data()),
        }
    }

    pub(super) fn is_diagonal(&self, value: ValueId) -> bool {
        let [rows, cols] = self.plan.values[value].shape;
        matches!((rows, cols), (lacis_plan::Dim::Nodes(_), lacis_plan::Dim::Nodes(_)))
    }

    /// A sparse value: its matrix, and values of its own where it has some.
    pub(super) fn sparse<'e>(
        &'e self,
        value: ValueId,
        context: &'e Context<'_>,
    ) -> Result<(CsrView<'e>, Option<&'e [f32]>)> {
        match self.plan.values[value].place {
            Place::Adjacency(adjacency) => Ok((context.levels.matrix(adjacency).view(), None)),
            Place::Features => match context.levels.features() {
                Features::Sparse(x) => Ok((x.view(), None)),
                Features::Dense(_) => Err(no_matrix(&self.plan, value)),
            },
            Place::Entries { of, slot } => {
                let (view, _) = self.sparse(of, context)?;
                Ok((view, Some(&self.slots.get(slot)[..view.cols.len()])))
            }
            Place::Matrix(index) => match &self.matrices[index] {
                Some(matrix) => Ok((matrix.view(), None)),
                None => Err(no_matrix(&self.plan, value)),
            },
            _ => Err(no_matrix(&self.plan, value)),
        }
    }

    /// Takes the slot of an output.
    pub(super) fn taken(
        &mut self,
        step: &Step,
        index: usize,
        context: &Context<'_>,
    ) -> Result<Taken> {
        let value = step.outputs[index];
        let shape = self.shape(value, context);
        let (slot, len) = match self.plan.values[value].place {
            Place::Slot(slot) if self.is_diagonal(value) => (slot, shape[0]),
            Place::Slot(slot) => (slot, shape[0] * shape[1]),
            Place::Entries { of, slot } => (slot, self.sparse(of, context)?.0.cols.len()),
            _ => return Err(no_matrix(&self.plan, value)),
        };
        let mut buffer = self.slots.take(slot);
        let words = (len * self.plan.number_bytes(value)).div_ceil(size_of::<f32>());
        if buffer.len() < words {
            // Sizes were bound before; entries with loops may be a few more than was predicted.
            buffer = Buffer::try_zeroed(words)?;
        }
        Ok(Taken { slot, buffer, shape, len })
    }

    pub(super) fn put(&mut self, taken: Taken) {
        self.slots.put(taken.slot, taken.buffer);
    }
}

fn no_matrix(plan: &Plan, value: ValueId) -> Error {
    let formula = &plan.values[value].formula;
    Error::argument("plan", format!("{formula} is not stored as the step expects"))
}
