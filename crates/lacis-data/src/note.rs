//! Sentences of an origin that count something.

/// `1 repeated edge was merged`, `7 repeated edges were merged`, or nothing for 0.
pub(crate) fn counted(count: usize, one: &str, many: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {many}")),
    }
}

/// What to say of repeated edges that were merged.
pub(crate) fn merged(count: usize) -> Option<String> {
    counted(count, "repeated edge was merged", "repeated edges were merged")
}

/// What to say of repeated edges whose weights were added.
pub(crate) fn summed(count: usize) -> Option<String> {
    counted(count, "repeated edge was summed", "repeated edges were summed")
}
