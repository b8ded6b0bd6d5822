//! How much memory the process has, and had at most.

use std::fs;

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

/// Counts the most memory from here on, where the system can.
pub fn forget_peak() {
    // A system that cannot leaves the peak that includes what came before.
    let _ = fs::write("/proc/self/clear_refs", "5");
}
