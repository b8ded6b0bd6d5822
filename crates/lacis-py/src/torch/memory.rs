//! Memory for results that torch then owns: on huge pages, and used again when torch lets go of it.
//!
//! A large result of torch's own is fresh memory that the system clears page by page; for products
//! that are limited by memory this costs as much as the product. Blocks are handed over as DLPack
//! tensors, whose deleter brings them back here.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{LazyLock, Mutex, PoisonError};

use lacis::{Buffer, Error, Result};

/// Bytes of a block are a multiple of this.
const UNIT: usize = 2 << 20;
/// Blocks, used and unused, are kept up to this many bytes, or half as many again as were in use at
/// a time: the next epoch needs them all, and not all sizes at once.
pub const KEPT_BYTES: usize = 256 << 20;
/// With every block that is asked for, the most sinks by this part of it, so that memory for one
/// large graph is not kept for ever.
const SINKS: usize = 1 << 10;

/// Blocks that nobody uses, by size, and how much there is.
#[derive(Default)]
struct Blocks {
    free: BTreeMap<usize, Vec<Buffer<u8>>>,
    free_bytes: usize,
    used_bytes: usize,
    most_bytes: usize,
}

impl Blocks {
    /// A block of at least so many bytes, and not much larger, that nobody uses: layers are of
    /// different widths, and one's results come after those of another are gone.
    fn reuse(&mut self, size: usize) -> Option<Buffer<u8>> {
        let mut fitting = self.free.range_mut(size..=size.saturating_add(size / 4));
        let block = fitting.find_map(|(_, blocks)| blocks.pop())?;
        self.free_bytes -= block.len();
        Some(block)
    }

    /// Another block is in use.
    fn used(&mut self, size: usize) {
        self.used_bytes += size;
        self.most_bytes = (self.most_bytes - self.most_bytes / SINKS).max(self.used_bytes);
    }

    /// A block is not in use any more. What is too much to keep comes out, largest first.
    fn unused(&mut self, block: Buffer<u8>) -> Vec<Buffer<u8>> {
        let size = block.len();
        (self.used_bytes, self.free_bytes) = (self.used_bytes - size, self.free_bytes + size);
        self.free.entry(size).or_default().push(block);
        self.surplus(0)
    }

    /// What is too much to keep, largest first, where so many bytes more are about to be used.
    fn surplus(&mut self, more: usize) -> Vec<Buffer<u8>> {
        let most = self.most_bytes.max(self.used_bytes + more);
        let mut dropped = Vec::new();
        while self.free_bytes > 0
            && self.free_bytes + self.used_bytes + more > KEPT_BYTES.max(most + most / 2)
            && let Some(mut largest) = self.free.last_entry()
        {
            match largest.get_mut().pop() {
                Some(block) => {
                    self.free_bytes -= block.len();
                    dropped.push(block);
                }
                None => drop(largest.remove()),
            }
        }
        dropped
    }
}

static BLOCKS: LazyLock<Mutex<Blocks>> = LazyLock::new(Mutex::default);

fn with_blocks<R>(f: impl FnOnce(&mut Blocks) -> R) -> R {
    f(&mut BLOCKS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A block of at least so many bytes. What it holds is not defined.
fn take(bytes: usize) -> Result<Buffer<u8>> {
    let size = bytes.max(1).checked_next_multiple_of(UNIT).ok_or(Error::Memory { bytes })?;
    let (kept, dropped) = with_blocks(|blocks| {
        let block = blocks.reuse(size);
        // A new block joins those that wait: together they stay below what may be kept.
        let dropped = if block.is_none() { blocks.surplus(size) } else { Vec::new() };
        (block, dropped)
    });
    drop(dropped);
    let block = match kept {
        Some(block) => block,
        None => Buffer::try_zeroed(size).or_else(|_| {
            clear();
            Buffer::try_zeroed(size)
        })?,
    };
    // Counted once it is there: a request that was refused says nothing of what is used.
    with_blocks(|blocks| blocks.used(block.len()));
    Ok(block)
}

fn give_back(block: Buffer<u8>) {
    // Dropped after the lock is free: unmapping takes a while.
    let dropped = with_blocks(|blocks| blocks.unused(block));
    drop(dropped);
}

/// Bytes that wait to be used again, and bytes that torch has.
pub fn usage() -> (usize, usize) {
    with_blocks(|blocks| (blocks.free_bytes, blocks.used_bytes))
}

/// Gives unused blocks back to the system.
pub fn clear() {
    let free = with_blocks(|blocks| {
        (blocks.free_bytes, blocks.most_bytes) = (0, blocks.used_bytes);
        std::mem::take(&mut blocks.free)
    });
    drop(free);
}

/// DLPack's description of a tensor (its specification, version 0.8), and what keeps it alive.
#[repr(C)]
pub struct Managed {
    data: *mut c_void,
    device: [i32; 2],
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
    context: *mut c_void,
    deleter: Option<extern "C" fn(*mut Managed)>,
    // What follows is ours: torch reads only what comes before.
    extent: [i64; 2],
    block: Option<Buffer<u8>>,
}

/// A tensor of `rows × cols` numbers of `bits` bits and DLPack's type `code`.
///
/// # Errors
/// When the system has no memory.
pub fn tensor(rows: usize, cols: usize, (code, bits): (u8, u8)) -> Result<Box<Managed>> {
    let bytes = rows
        .checked_mul(cols)
        .and_then(|n| n.checked_mul(usize::from(bits) / 8))
        .ok_or(Error::Memory { bytes: usize::MAX })?;
    let mut block = take(bytes)?;
    let data = block.make_mut().as_mut_ptr().cast();
    let mut tensor = Box::new(Managed {
        data,
        device: [1, 0],
        dimensions: 2,
        code,
        bits,
        lanes: 1,
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
        context: std::ptr::null_mut(),
        deleter: Some(release),
        extent: [rows as i64, cols as i64],
        block: Some(block),
    });
    tensor.shape = tensor.extent.as_mut_ptr();
    Ok(tensor)
}

/// Called once by whoever owns the tensor, when it is done with it.
pub extern "C" fn release(tensor: *mut Managed) {
    // SAFETY: DLPack hands back the pointer that `capsule` made of a box, once.
    #[allow(unsafe_code)]
    let mut tensor = unsafe { Box::from_raw(tensor) };
    if let Some(block) = tensor.block.take() {
        give_back(block);
    }
}
