//! Threads for torch's calls: as many as torch uses, in this process.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use lacis::{Keeper, Result, Threads};

use super::memory::KEPT_BYTES;

/// Pools by process and number of threads, each with what keeps its memory for the next call. A
/// pool does not survive `fork`, and must not be dropped by a child that never had its threads: it
/// stays here.
type Pools = HashMap<(u32, usize), (Threads, Keeper)>;

static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);

fn pools() -> MutexGuard<'static, Pools> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pool of so many threads.
///
/// # Errors
/// When the system refuses the threads.
pub fn threads(count: usize) -> Result<Threads> {
    // No lock: a worker may have been forked while another thread held it.
    if count <= 1 {
        return Ok(Threads::one());
    }
    let key = (std::process::id(), count);
    let mut pools = pools();
    if let Some((pool, _)) = pools.get(&key) {
        return Ok(pool.clone());
    }
    let pool = Threads::new(count)?;
    pools.insert(key, (pool.clone(), pool.keep()));
    Ok(pool)
}

/// Every pool that this process made: another's may have been forked with its locks held.
fn each_own(f: impl FnMut(&(Threads, Keeper))) {
    let own = std::process::id();
    pools().iter().filter(|((process, _), _)| *process == own).map(|(_, pool)| pool).for_each(f);
}

/// Bytes that kernels have used and will use again.
pub fn idle_bytes() -> usize {
    let mut bytes = 0;
    each_own(|(pool, _)| bytes += pool.idle_bytes());
    bytes
}

/// Gives them back to the system.
pub fn clear() {
    each_own(|(pool, _)| pool.release_idle());
}

/// After a call: keeps no more than the results of others may wait for.
pub fn settle(pool: &Threads) {
    if pool.idle_bytes() > KEPT_BYTES {
        pool.release_idle();
    }
}
