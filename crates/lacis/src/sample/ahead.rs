//! [`Ahead`]: things made before they are asked for, by threads of their own, in a fixed order.
//!
//! Thread `w` of `W` makes the things `w, w + W, w + 2W, …` and waits when it is `depth` of them
//! ahead; whoever asks takes from the threads in turn. So the order is that of the numbers, and
//! what waits is bounded. A thing that was used goes back to its thread, which may use its memory
//! again. Dropping an `Ahead` early stops and joins the threads.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use lacis_core::{Error, Result};

/// How many threads prepare, and how far ahead of the use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// Threads that prepare; 0 prepares when asked, on the caller's own.
    pub workers: usize,
    /// Things that each of them may have ready; at least 1 is.
    pub depth: usize,
}

impl Preparation {
    /// Nothing ahead: the caller's thread does it when asked.
    pub const WHEN_ASKED: Preparation = Preparation { workers: 0, depth: 0 };
}

impl Default for Preparation {
    /// One thread, two things ahead.
    fn default() -> Self {
        Preparation { workers: 1, depth: 2 }
    }
}

/// Makes thing number `n`, in the memory of an old one if there is one.
type Maker<T> = Box<dyn FnMut(usize, Option<T>) -> Result<T> + Send>;

/// A batch, and what somebody made of it.
pub struct With<B, X> {
    batch: B,
    made: Option<X>,
}

impl<B, X> With<B, X> {
    /// The batch.
    pub fn batch(&self) -> &B {
        &self.batch
    }

    /// What was made of it.
    ///
    /// # Panics
    /// Never: it is made before the batch is handed out.
    pub fn made(&self) -> &X {
        self.made.as_ref().expect("made with the batch")
    }
}

/// A maker of batches that begins at number `from`, with something made of each by its thread. What
/// was made of an old batch goes before its memory is used again.
pub(super) fn with<B, X>(
    from: usize,
    mut maker: impl FnMut(usize, Option<B>) -> Result<B>,
    mut make: impl FnMut(&B) -> Result<X>,
) -> impl FnMut(usize, Option<With<B, X>>) -> Result<With<B, X>> {
    move |number, old| {
        let old = old.map(|With { batch, made }| {
            drop(made);
            batch
        });
        let batch = maker(from + number, old)?;
        let made = Some(make(&batch)?);
        Ok(With { batch, made })
    }
}

/// The things `0..count`, one after another. See the module's head.
pub struct Ahead<T> {
    count: usize,
    next: usize,
    current: Option<T>,
    source: Source<T>,
}

enum Source<T> {
    WhenAsked(Maker<T>),
    Workers(Vec<Worker<T>>),
}

struct Worker<T> {
    made: Option<Receiver<Result<T>>>,
    used: Sender<T>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Ahead<T> {
    /// Begins to make `count` things; each thread has a maker of its own.
    ///
    /// # Errors
    /// When the system refuses the threads.
    pub fn new<M>(count: usize, how: Preparation, maker: impl Fn() -> M) -> Result<Self>
    where
        M: FnMut(usize, Option<T>) -> Result<T> + Send + 'static,
    {
        let workers = how.workers.min(count);
        let source = match workers {
            0 => Source::WhenAsked(Box::new(maker())),
            _ => {
                let start = |w| Worker::start((w, workers, count), how.depth.max(1), maker());
                Source::Workers((0..workers).map(start).collect::<Result<_>>()?)
            }
        };
        Ok(Ahead { count, next: 0, current: None, source })
    }

    /// How many things there are in all.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The next thing, or `None` after the last one. The one before it is used again.
    ///
    /// # Errors
    /// When it could not be made; there is nothing after that.
    ///
    /// # Panics
    /// When the thread that makes it panicked, with the same message.
    #[allow(clippy::should_implement_trait)] // it lends, which an iterator cannot
    pub fn next(&mut self) -> Result<Option<&T>> {
        let number = self.next;
        let old = self.current.take();
        if number >= self.count {
            return Ok(None);
        }
        let made = match &mut self.source {
            Source::WhenAsked(maker) => maker(number, old),
            Source::Workers(workers) => {
                let n_workers = workers.len();
                if let Some(old) = old {
                    // A thread that has made its last thing wants none back.
                    let _ = workers[(number - 1) % n_workers].used.send(old);
                }
                workers[number % n_workers].take()
            }
        };
        self.next = if made.is_ok() { number + 1 } else { self.count };
        self.current = Some(made?);
        Ok(self.current.as_ref())
    }
}

impl<T: Send + 'static> Worker<T> {
    /// Starts thread `w` of `(w, of, count)`.
    fn start(
        (first, of, count): (usize, usize, usize),
        depth: usize,
        mut maker: impl FnMut(usize, Option<T>) -> Result<T> + Send + 'static,
    ) -> Result<Self> {
        let (give, made): (SyncSender<Result<T>>, _) = sync_channel(depth);
        let (used, old): (_, Receiver<T>) = channel();
        let work = move || {
            for number in (first..count).step_by(of) {
                let thing = maker(number, old.try_recv().ok());
                let failed = thing.is_err();
                // Nobody listens any more: the caller stopped early.
                if give.send(thing).is_err() || failed {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("lacis-ahead-{first}")).spawn(work);
        let thread =
            thread.map_err(|e| Error::argument("threads that prepare batches", e.to_string()))?;
        Ok(Worker { made: Some(made), used, thread: Some(thread) })
    }

    /// The next thing of this thread.
    fn take(&mut self) -> Result<T> {
        let received = self.made.as_ref().expect("kept until dropped").recv();
        received.unwrap_or_else(|_| {
            // It ended without sending: it panicked.
            match self.thread.take().map(JoinHandle::join) {
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                _ => unreachable!("a thread ends early only by a failure, which is sent"),
            }
        })
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        // Without a receiver a thread that waits to send stops waiting.
        drop(self.made.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn squares(workers: usize, depth: usize) -> Ahead<Vec<usize>> {
        let make = || {
            |number: usize, old: Option<Vec<usize>>| {
                let mut memory = old.unwrap_or_default();
                memory.clear();
                memory.push(number * number);
                Ok(memory)
            }
        };
        Ahead::new(100, Preparation { workers, depth }, make).unwrap()
    }

    #[test]
    fn things_come_in_order_for_any_number_of_threads() {
        for (workers, depth) in [(0, 0), (1, 1), (2, 3), (7, 1), (200, 2)] {
            let mut all = squares(workers, depth);
            for number in 0..100 {
                assert_eq!(all.next().unwrap(), Some(&vec![number * number]));
            }
            assert_eq!(all.next().unwrap(), None);
            assert_eq!(all.next().unwrap(), None);
        }
    }

    #[test]
    fn stopping_early_ends_the_threads() {
        for taken in 0..5 {
            let mut all = squares(3, 1);
            (0..taken).for_each(|_| assert!(all.next().unwrap().is_some()));
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let made = Arc::new(AtomicUsize::new(0));
        let make = || {
            let made = made.clone();
            move |number: usize, _| {
                made.fetch_add(1, Ordering::SeqCst);
                Ok(number)
            }
        };
        let mut all = Ahead::new(1000, Preparation { workers: 2, depth: 3 }, make).unwrap();
        for taken in 1..20 {
            all.next().unwrap();
            // Those taken, those that wait, one in each thread's hands.
            assert!(made.load(Ordering::SeqCst) <= taken + 2 * (3 + 1));
        }
    }

    #[test]
    fn a_failure_is_told_once_and_ends_it() {
        let make = || {
            |number: usize, _| match number {
                3 => Err(Error::argument("3", "is not to be")),
                _ => Ok(number),
            }
        };
        for workers in [0, 2] {
            let mut all = Ahead::new(10, Preparation { workers, depth: 2 }, make).unwrap();
            (0..3).for_each(|n| assert_eq!(all.next().unwrap(), Some(&n)));
            assert_eq!(all.next().unwrap_err().to_string(), "3: is not to be");
            assert_eq!(all.next().unwrap(), None);
        }
    }

    #[test]
    #[should_panic(expected = "maker's own words")]
    fn a_panic_is_passed_on() {
        let make =
            || |number: usize, _| if number < 1 { Ok(()) } else { panic!("maker's own words") };
        let mut all = Ahead::new(3, Preparation { workers: 1, depth: 1 }, make).unwrap();
        while all.next().unwrap().is_some() {}
    }
}
