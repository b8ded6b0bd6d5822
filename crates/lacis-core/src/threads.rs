//! [`Threads`]: who runs a parallel loop. The caller decides and owns it; there is no global pool.
//!
//! Work is cut into items by the *problem* (never by the number of threads), each item is done
//! whole by one thread, and results come back in the items' order. So a result never depends on
//! how many threads there were.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytemuck::Pod;
use rayon::{ThreadPool, ThreadPoolBuilder, Yield};

use crate::lent::{Idle, Keeper, Lent};
use crate::{Error, Result};

/// How long a thread looks for more work before it sleeps, where it may. To wake one takes 20 to
/// 100 µs, and on virtual machines several loops may pass before the system gives it a processor
/// of its own: one that has slept for long does not count as free there.
const LINGER: Duration = Duration::from_millis(1);

/// The caller's own thread, or a pool of several; and the memory their loops share.
#[derive(Clone, Default)]
pub struct Threads {
    pool: Option<Arc<Pool>>,
    idle: Arc<Idle>,
}

struct Pool {
    count: usize,
    /// Has the thread that made it as its first.
    own: Option<ThreadPool>,
    sleep: Sleep,
    /// Serves all other threads, from the first of them on.
    others: OnceLock<Option<ThreadPool>>,
}

/// When a thread without work goes to sleep.
#[derive(Clone, Copy, PartialEq)]
enum Sleep {
    AtOnce,
    /// After [`LINGER`].
    Later,
}

impl Pool {
    /// The threads that serve the caller, and when they sleep; `None` where the system has none.
    fn here(&self) -> Option<(&ThreadPool, Sleep)> {
        if let Some(own) = self.own.as_ref().filter(|own| own.current_thread_index().is_some()) {
            return Some((own, self.sleep));
        }
        let others = self.others.get_or_init(|| builder(self.count).build().ok());
        others.as_ref().map(|others| (others, Sleep::AtOnce))
    }
}

fn builder(count: usize) -> ThreadPoolBuilder {
    ThreadPoolBuilder::new().num_threads(count).thread_name(|i| format!("lacis-{i}"))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

impl Threads {
    /// The caller's own thread only.
    pub fn one() -> Self {
        Threads::default()
    }

    /// A pool of `count` threads that lives as long as this value and its clones.
    ///
    /// # Errors
    /// When `count` is 0 or the system refuses the threads.
    pub fn new(count: usize) -> Result<Self> {
        match count {
            0 => Err(Error::argument("threads", "0 is too few; 1 or more would be right")),
            1 => Ok(Threads::one()),
            _ => builder(count)
                .build()
                .map(|others| Threads::of(count, None, Sleep::AtOnce, Some(others).into()))
                .map_err(|e| Error::argument(format!("threads = {count}"), e.to_string())),
        }
    }

    /// The same for programs that do little else. The thread that makes it is one of the `count`,
    /// for good (also for other users of rayon): its loops begin at once, and those that are over
    /// before another thread is awake wait for nobody. The others stay awake for a millisecond
    /// after a loop, where each may have a processor; beside pools that do the same (OpenMP's, say)
    /// that would be in each other's way. Loops of other threads are handed over, to `count` more
    /// that are made when first needed. A thread that is part of a pool already gets what
    /// [`Threads::new`] makes.
    ///
    /// # Errors
    /// As [`Threads::new`].
    pub fn eager(count: usize) -> Result<Self> {
        let sleep = if count <= processors() { Sleep::Later } else { Sleep::AtOnce };
        let own = (count > 1).then(|| builder(count).use_current_thread().build());
        match own {
            Some(Ok(own)) => Ok(Threads::of(count, Some(own), sleep, OnceLock::new())),
            _ => Threads::new(count),
        }
    }

    fn of(
        count: usize,
        own: Option<ThreadPool>,
        sleep: Sleep,
        others: OnceLock<Option<ThreadPool>>,
    ) -> Self {
        let pool = Some(Arc::new(Pool { count, own, sleep, others }));
        Threads { pool, ..Threads::default() }
    }

    /// A pool as large as this process may use: affinity and cgroup quota counted.
    pub fn available() -> Self {
        Threads::new(processors()).unwrap_or_default()
    }

    /// How many threads there are.
    pub fn count(&self) -> usize {
        self.pool.as_ref().map_or(1, |pool| pool.count)
    }

    /// Memory for a loop: numbers of any value, to be written before they are read.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn lend<T: Pod>(&self, len: usize) -> Result<Lent<'_, T>> {
        Lent::new(&self.idle, len)
    }

    /// Has what is lent kept for later loops, while what this returns lives.
    pub fn keep(&self) -> Keeper {
        Keeper::new(&self.idle)
    }

    /// Gives what is kept for later loops back to the system.
    pub fn release_idle(&self) {
        self.idle.clear();
    }

    /// Bytes that are kept for later loops.
    pub fn idle_bytes(&self) -> usize {
        self.idle.bytes()
    }

    /// `f`, on one of the pool's own threads: parallel loops in it begin without being handed over
    /// from thread to thread, which takes longer than many a loop.
    pub fn inside<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        match self.pool.as_ref().and_then(|pool| pool.here()) {
            Some((threads, _)) => threads.install(f),
            None => f(),
        }
    }

    /// `f` of every item, in the items' order.
    pub fn map<T: Send, R: Send>(&self, items: Vec<T>, f: impl Fn(T) -> R + Sync) -> Vec<R> {
        self.map_with(items, || (), |(), item| f(item))
    }

    /// As [`Threads::map`], with scratch memory that each thread makes once.
    pub fn map_with<T: Send, S, R: Send>(
        &self,
        items: Vec<T>,
        scratch: impl Fn() -> S + Sync,
        f: impl Fn(&mut S, T) -> R + Sync,
    ) -> Vec<R> {
        let pool = match &self.pool {
            Some(pool) if items.len() > 1 => pool,
            _ => {
                let mut own = scratch();
                return items.into_iter().map(|item| f(&mut own, item)).collect();
            }
        };
        let results = Mutex::new(items.iter().map(|_| None).collect::<Vec<_>>());
        let queue = Mutex::new(items.into_iter().enumerate());
        everywhere(pool, &|| {
            let next = || locked(&queue).next();
            // Who comes when all is done need not make its memory.
            let Some(first) = next() else { return };
            let mut own = scratch();
            let mine = std::iter::once(first).chain(std::iter::from_fn(next));
            let done: Vec<_> = mine.map(|(i, item)| (i, f(&mut own, item))).collect();
            let mut results = locked(&results);
            done.into_iter().for_each(|(i, result)| results[i] = Some(result));
        });
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().flatten().collect()
    }

    /// `f` on every item.
    pub fn for_each<T: Send>(&self, items: Vec<T>, f: impl Fn(T) + Sync) {
        let pool = match &self.pool {
            Some(pool) if items.len() > 1 => pool,
            _ => return items.into_iter().for_each(f),
        };
        let queue = Mutex::new(items.into_iter());
        let next = || locked(&queue).next();
        everywhere(pool, &|| std::iter::from_fn(next).for_each(&f));
    }

    /// As [`Threads::map_with`] for functions that may fail: all results, or the error of the
    /// *first* item that failed, so that the message does not depend on timing. Items after a
    /// failed one are not begun.
    ///
    /// # Errors
    /// The first item's that failed.
    pub fn try_map_with<T: Send, S, R: Send>(
        &self,
        items: Vec<T>,
        scratch: impl Fn() -> S + Sync,
        f: impl Fn(&mut S, T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let first_failed = AtomicUsize::new(usize::MAX);
        let items = items.into_iter().enumerate().collect();
        let results = self.map_with(items, scratch, |own, (i, item)| {
            if i > first_failed.load(Relaxed) {
                return None;
            }
            let result = f(own, item);
            if result.is_err() {
                first_failed.fetch_min(i, Relaxed);
            }
            Some(result)
        });
        // What was not begun comes after the failure that `collect` stops at.
        results.into_iter().flatten().collect()
    }

    /// As [`Threads::try_map_with`], without scratch memory.
    ///
    /// # Errors
    /// The first item's that failed.
    pub fn try_map<T: Send, R: Send>(
        &self,
        items: Vec<T>,
        f: impl Fn(T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        self.try_map_with(items, || (), |(), item| f(item))
    }
}

/// Runs it on as many threads of the pool as are free to take part: one that gets no time from the
/// machine while the others finish the work is not waited for. Not generic: a program has hundreds
/// of parallel loops, and this is compiled once for all of them.
fn everywhere(pool: &Pool, work: &(dyn Fn() + Sync)) {
    fn spread(threads: usize, sleep: Sleep, work: &(dyn Fn() + Sync)) {
        match threads {
            0 | 1 => work(),
            _ => {
                let (here, half) = (rayon::current_thread_index(), threads / 2);
                let there = || {
                    spread(half, sleep, work);
                    if sleep == Sleep::Later && rayon::current_thread_index() != here {
                        linger_next();
                    }
                };
                let _waits = Waits::begin();
                rayon::join(|| spread(threads - half, sleep, work), there);
            }
        }
    }
    match pool.here() {
        Some((threads, sleep)) => threads.install(|| spread(pool.count, sleep, work)),
        None => work(),
    }
}

thread_local! {
    /// Whether this thread looks for work in [`linger`], below all that it does now.
    static LINGERS: Cell<bool> = const { Cell::new(false) };
    /// How many loops this thread may wait in for others: who waits must not linger.
    static WAITING: Cell<usize> = const { Cell::new(0) };
}

/// While it lives, its thread has a loop to end.
struct Waits;

impl Waits {
    fn begin() -> Self {
        WAITING.set(WAITING.get() + 1);
        Waits
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        WAITING.set(WAITING.get() - 1);
    }
}

/// Whether this thread has nothing to do but to look for work. The first of a pool is the
/// caller's, who has other things to do.
fn may_linger() -> bool {
    rayon::current_thread_index() != Some(0) && WAITING.get() == 0 && !LINGERS.get()
}

/// Has this thread of a pool look for work when it is done with what it does now.
fn linger_next() {
    if may_linger() {
        rayon::spawn(linger);
    }
}

/// Does what work there is until none has come for a while. Another thread may have taken this on.
fn linger() {
    if !may_linger() {
        return;
    }
    LINGERS.set(true);
    let mut last = Instant::now();
    while last.elapsed() < LINGER {
        match rayon::yield_now() {
            Some(Yield::Executed) => last = Instant::now(),
            _ => (0..32).for_each(|_| std::hint::spin_loop()),
        }
    }
    LINGERS.set(false);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", self.count())
    }
}

/// Cuts `0..len` into ranges of `size`, the last one shorter.
pub fn ranges(len: usize, size: usize) -> Vec<std::ops::Range<usize>> {
    (0..len).step_by(size).map(|start| start..(start + size).min(len)).collect()
}

/// Cuts a slice into consecutive pieces that end at `ends`.
///
/// # Panics
/// When the ends are not ascending or pass the slice's end.
pub fn split_at_ends<'a, T>(mut slice: &'a mut [T], ends: &[usize]) -> Vec<&'a mut [T]> {
    let mut pieces = Vec::with_capacity(ends.len());
    let mut start = 0;
    for &end in ends {
        let (piece, rest) = slice.split_at_mut(end - start);
        pieces.push(piece);
        slice = rest;
        start = end;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_for_any_number_of_threads() {
        let expected: Vec<u32> = (0..1000).map(|i| i * i).collect();
        for count in [1, 2, 7] {
            let threads = Threads::new(count).unwrap();
            assert_eq!(threads.count(), count);
            assert_eq!(threads.map((0..1000).collect(), |i: u32| i * i), expected);
        }
        assert!(Threads::new(0).is_err());
    }

    #[test]
    fn loops_of_other_threads_and_loops_in_loops_are_done_too() {
        let sum = |threads: &Threads, n: u32| threads.map((0..n).collect(), |i: u32| i).len();
        let first = Threads::eager(2).unwrap();
        let second = Threads::new(3).unwrap();
        for threads in [&first, &second, &Threads::available()] {
            let inner = threads.map(vec![10, 20, 30, 40], |n: u32| sum(threads, n));
            assert_eq!(inner, [10, 20, 30, 40]);
            let elsewhere = std::thread::scope(|scope| {
                let more: Vec<_> = (0..3).map(|_| scope.spawn(|| sum(threads, 100))).collect();
                more.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(elsewhere, [100; 3]);
            assert_eq!(threads.inside(|| sum(threads, 7)), 7);
        }
    }

    #[test]
    fn a_pool_outlives_the_loops_of_its_threads() {
        for round in 0..20 {
            let threads = Threads::eager(2).unwrap();
            assert_eq!(threads.map((0..50).collect(), |i: u32| i + round).len(), 50);
        }
    }

    #[test]
    fn the_first_failure_is_the_one_reported() {
        let threads = Threads::new(2).unwrap();
        let fail = |i: u32| {
            if i < 5 { Ok(i) } else { Err(Error::argument(i.to_string(), "bad")) }
        };
        let error = threads.try_map((0..100).collect(), fail).unwrap_err();
        assert_eq!(error.to_string(), "5: bad");
    }

    #[test]
    fn ranges_cover_everything_once() {
        assert_eq!(ranges(10, 4), [0..4, 4..8, 8..10]);
        assert!(ranges(0, 4).is_empty());
    }
}
