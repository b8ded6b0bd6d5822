//! Which CPU this is, as the system tells it.

use std::fs;

use lacis_kernels::profile::{Cache, Machine};

/// This machine. What the system does not tell stays empty or 0.
pub fn this_machine() -> Machine {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = |names: &[&str]| names.iter().find_map(|name| field(&text, name));
    // The second names are those of ARM.
    let number = |names: &[&str]| first(names).and_then(|text| parsed(&text)).unwrap_or(0);
    Machine {
        name: first(&["model name", "Processor"]).unwrap_or_default(),
        vendor: first(&["vendor_id", "CPU implementer"]).unwrap_or_default(),
        family: number(&["cpu family", "CPU architecture"]),
        model: number(&["model", "CPU part"]),
        stepping: number(&["stepping", "CPU revision"]),
        caches: caches(),
        instruction_sets: Machine::instruction_sets(),
    }
}

/// The first `name : value` of this very name.
fn field(text: &str, name: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn parsed(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Data and unified caches of the first core, the nearest first.
fn caches() -> Vec<Cache> {
    let cache = |index: usize| {
        let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
        let read = |file: &str| {
            fs::read_to_string(format!("{folder}/{file}")).ok().map(|text| text.trim().to_owned())
        };
        let size = read("size")?;
        let (number, unit) = size.split_at(size.find(|c: char| !c.is_ascii_digit())?);
        let unit: usize = if unit == "M" { 1 << 20 } else { 1 << 10 };
        let bytes = number.parse::<usize>().ok()?.checked_mul(unit)?;
        let level = read("level")?.parse().ok()?;
        (read("type")? != "Instruction").then_some(Cache { level, bytes })
    };
    (0..8).filter_map(cache).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_whole() {
        let text = "vendor_id\t: A\nmodel\t\t: 17\nmodel name\t: EPYC: two\nCPU part\t: 0xd0c\n";
        assert_eq!(field(text, "model name").unwrap(), "EPYC: two");
        assert_eq!(parsed(&field(text, "model").unwrap()), Some(17));
        assert_eq!(parsed(&field(text, "CPU part").unwrap()), Some(0xd0c));
        assert_eq!(field(text, "name"), None);
    }

    #[test]
    fn the_same_machine_is_equal_to_itself() {
        assert_eq!(this_machine(), this_machine());
        assert!(!this_machine().instruction_sets.is_empty());
    }
}
