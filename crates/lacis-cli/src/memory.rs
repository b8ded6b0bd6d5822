//! How much memory a process may have, has, and had at most.

use std::fs;

use lacis::schedule::MemorySize;
use lacis::{Error, Result};

use crate::machine;

/// Bytes of `8G`, `512M`, or of a share such as `80%` of what this process may have.
///
/// # Errors
/// When the text is no amount, or the machine's memory is not known.
pub fn parse_limit(text: &str) -> Result<usize> {
    let size: MemorySize = text.parse()?;
    match (size, machine::memory_bytes()) {
        (_, Some(all)) => Ok(size.bytes(all as u64) as usize),
        (MemorySize::Bytes(bytes), None) => Ok(bytes as usize),
        (MemorySize::Part(_), None) => {
            let problem = "how much memory there is cannot be found out; 8G would be right";
            Err(Error::argument(format!("--memory-limit {text}"), problem))
        }
    }
}

/// Memory that the process has now, as the system tells it.
pub fn now_bytes() -> Option<usize> {
    status("VmRSS:")
}

/// The most memory that the process ever had.
pub fn peak_bytes() -> Option<usize> {
    status("VmHWM:")
}

fn status(name: &str) -> Option<usize> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok()?.checked_mul(1024)
}
