//! `lacis doctor`: what this machine has, and what Lacis will use of it.

use crate::args::Global;
use crate::machine::Machine;
use crate::out::{Out, Outcome, bytes};

pub fn run(global: &Global, out: &Out) -> Outcome {
    out.start("doctor", global)?;
    let machine = Machine::look(global)?;
    out.event("doctor", &machine)?;
    let unknown = || "unknown".to_owned();
    let size = |number: Option<usize>| number.map_or_else(unknown, bytes);
    let threads = &machine.threads;
    let rows = [
        ("lacis", format!("{} on {}", machine.version, machine.system)),
        ("cpu", machine.cpu.clone().unwrap_or_else(unknown)),
        ("instructions", machine.instruction_sets.join(" ")),
        ("caches", machine.caches.join(", ")),
        ("threads", format!("{}, decided by {}", threads.count, threads.decided_by)),
        (
            "memory",
            format!(
                "{}, {} available",
                size(machine.memory_total_bytes),
                size(machine.memory_available_bytes)
            ),
        ),
        ("memory limit", machine.memory_limit_bytes.map_or("none".to_owned(), bytes)),
        ("huge pages", machine.huge_pages.clone().unwrap_or_else(unknown)),
        ("data folder", machine.data_folder.clone().unwrap_or_else(unknown)),
        ("profile", machine.machine_profile.clone()),
    ];
    for (name, value) in rows {
        out.line(format_args!("{name:<14}{value}"))?;
    }
    for advice in advice(&machine) {
        out.line(format_args!("\n{advice}"))?;
    }
    Ok(())
}

/// What a user could change to make Lacis faster here.
fn advice(machine: &Machine) -> Vec<String> {
    let mut advice = Vec::new();
    if machine.huge_pages.as_deref() == Some("never") {
        advice.push(
            "Huge pages are off: large graphs gather slower. As root:\n  \
             echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
                .to_owned(),
        );
    }
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    if machine.threads.count > cpus {
        let (count, by) = (machine.threads.count, machine.threads.decided_by);
        advice.push(format!("{by} asks for {count} threads; this process may use {cpus} CPUs."));
    }
    advice
}
