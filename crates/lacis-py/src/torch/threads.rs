//! Threads for torch's calls: as many as torch uses, in this process.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use lacis::{Result, Threads};

/// Pools by process and number of threads. A pool does not survive `fork`, and must not be dropped
/// by a child that never had its threads: it stays here.
static POOLS: LazyLock<Mutex<HashMap<(u32, usize), Threads>>> = LazyLock::new(Mutex::default);

/// The pool of so many threads.
///
/// # Errors
/// When the system refuses the threads.
pub fn threads(count: usize) -> Result<Threads> {
    if count <= 1 {
        return Ok(Threads::one());
    }
    let key = (std::process::id(), count);
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(&key) {
        return Ok(pool.clone());
    }
    let pool = Threads::new(count)?;
    pools.insert(key, pool.clone());
    Ok(pool)
}
