//! [`Lent`]: memory that a loop needs while it runs, and its next run needs again.
//!
//! To ask the system for the same memory in every epoch costs more than many a loop: pages are
//! taken, cleared and given back each time. [`Threads::lend`](crate::Threads::lend) hands out what
//! an earlier loop gave back, for as long as somebody says that loops will come again
//! ([`Threads::keep`](crate::Threads::keep)); else it goes back to the system at once.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::Pod;

use crate::buffer::Line;
use crate::{Buffer, Result};

/// What is not lent just now.
#[derive(Default)]
pub(crate) struct Idle(Mutex<Shelf>);

#[derive(Default)]
struct Shelf {
    buffers: Vec<Buffer<Line>>,
    /// How many want them kept.
    keepers: usize,
}

impl Idle {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that wait to be lent again.
    pub(crate) fn bytes(&self) -> usize {
        self.shelf().buffers.iter().map(|buffer| size_of_val::<[Line]>(buffer)).sum()
    }

    /// Gives what is not lent just now back to the system.
    pub(crate) fn clear(&self) {
        let buffers = std::mem::take(&mut self.shelf().buffers);
        drop(buffers);
    }

    /// The smallest that has room for so many lines; where none has, the largest leaves, so that
    /// what grows does not pile up.
    fn take(&self, lines: usize) -> Option<Buffer<Line>> {
        let buffers = &mut self.shelf().buffers;
        let fits = buffers.iter().enumerate().filter(|(_, buffer)| buffer.len() >= lines);
        if let Some((at, _)) = fits.min_by_key(|(_, buffer)| buffer.len()) {
            return Some(buffers.swap_remove(at));
        }
        let largest = buffers.iter().enumerate().max_by_key(|(_, buffer)| buffer.len());
        if let Some((at, _)) = largest {
            buffers.swap_remove(at);
        }
        None
    }
}

/// Some numbers of any value, to be written before they are read; given back when dropped.
pub struct Lent<'t, T> {
    home: &'t Idle,
    /// None where there are no numbers.
    lines: Option<Buffer<Line>>,
    len: usize,
    element: PhantomData<T>,
}

impl<'t, T: Pod> Lent<'t, T> {
    pub(crate) fn new(home: &'t Idle, len: usize) -> Result<Self> {
        let lines = match Line::count_for::<T>(len)? {
            0 => None,
            lines => Some(home.take(lines).map_or_else(|| Buffer::try_zeroed(lines), Ok)?),
        };
        let mut lent = Lent { home, lines, len, element: PhantomData };
        if cfg!(debug_assertions) {
            // Whoever reads before writing shall notice: all bits set is no number.
            bytemuck::cast_slice_mut::<T, u8>(&mut lent).fill(u8::MAX);
        }
        Ok(lent)
    }
}

impl<T: Pod> Deref for Lent<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let Some(lines) = &self.lines else { return &[] };
        let bytes: &[u8] = bytemuck::cast_slice(lines);
        bytemuck::cast_slice(&bytes[..self.len * size_of::<T>()])
    }
}

impl<T: Pod> DerefMut for Lent<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let Some(lines) = &mut self.lines else { return &mut [] };
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(lines.make_mut());
        bytemuck::cast_slice_mut(&mut bytes[..self.len * size_of::<T>()])
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        let Some(lines) = self.lines.take() else { return };
        let mut shelf = self.home.shelf();
        if shelf.keepers > 0 {
            shelf.buffers.push(lines);
        }
    }
}

impl<T> fmt::Debug for Lent<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({})", self.len)
    }
}

/// While it lives, memory that loops give back is kept for the next ones.
pub struct Keeper(Arc<Idle>);

impl Keeper {
    pub(crate) fn new(idle: &Arc<Idle>) -> Self {
        idle.shelf().keepers += 1;
        Keeper(Arc::clone(idle))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let mut shelf = self.0.shelf();
        shelf.keepers -= 1;
        if shelf.keepers == 0 {
            shelf.buffers.clear();
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}

#[cfg(test)]
mod tests {
    use crate::Threads;

    #[test]
    fn what_is_kept_is_lent_again() {
        let threads = Threads::one();
        let place = |len: usize| {
            let mut lent = threads.lend::<f32>(len).unwrap();
            lent.fill(1.5);
            assert!(lent.len() == len && lent.iter().all(|x| *x == 1.5));
            lent.as_ptr().addr()
        };
        let keeper = threads.keep();
        let first = place(1000);
        assert_eq!(place(1000), first);
        assert_eq!(place(7), first, "a smaller one fits too");
        assert_eq!(threads.idle_bytes(), 4032, "whole lines");
        let (_one, two) = (threads.lend::<f32>(1000).unwrap(), place(1000));
        assert_ne!(two, first, "two at once are two");
        threads.release_idle();
        assert_eq!(threads.idle_bytes(), 0);
        drop(keeper);
        assert_eq!(threads.idle_bytes(), 0);
        assert!(threads.lend::<f64>(0).unwrap().is_empty());
        assert_eq!(threads.lend::<[f32; 3]>(7).unwrap().len(), 7);
        assert!(threads.lend::<f64>(usize::MAX).is_err());
    }

    #[test]
    fn clones_share_what_is_kept() {
        let threads = Threads::new(2).unwrap();
        let _keeper = threads.clone().keep();
        let address = |threads: &Threads| threads.lend::<u32>(64).unwrap().as_ptr().addr();
        assert_eq!(address(&threads), address(&threads.clone()));
    }
}
