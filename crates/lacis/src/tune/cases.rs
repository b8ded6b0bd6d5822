//! Which problems are measured.

use lacis_kernels::profile::table;

use super::{Detail, Effort};
use crate::ops::{Form, OPERATIONS, Operation};

/// One problem for all kernels of an operation.
pub(super) struct Case {
    pub op: &'static Operation,
    pub graph: &'static str,
    pub form: Form,
    pub k: usize,
    /// Columns of the other factor; 0 for as many as it has rows.
    pub n: usize,
}

/// Graphs by detail: in a core's cache, in the last one, in neither; sparse, dense, without hubs.
const GRAPHS: &[(Detail, &str)] = &[
    (Detail::Glimpse, "rmat:n=2k,e=16k,seed=1"),
    (Detail::Quick, "rmat:n=20k,e=160k,seed=2"),
    (Detail::Quick, "rmat:n=120k,e=500k,seed=3"),
    (Detail::Quick, "rmat:n=4k,e=300k,seed=4"),
    (Detail::Full, "rmat:n=300k,e=4M,seed=5"),
    (Detail::Full, "grid:rows=400,cols=400"),
];

/// Widths by detail: full vectors first, then those that leave a rest.
const WIDTHS: &[(Detail, usize)] = &[
    (Detail::Glimpse, 16),
    (Detail::Glimpse, 64),
    (Detail::Quick, 32),
    (Detail::Quick, 128),
    (Detail::Quick, 256),
    (Detail::Full, 8),
    (Detail::Full, 41),
    (Detail::Quick, 48),
    (Detail::Full, 100),
    (Detail::Full, 602),
];

/// Bytes that a kernel may gather in one run, by detail.
fn most_bytes(detail: Detail) -> usize {
    match detail {
        Detail::Glimpse => 16 << 20,
        Detail::Quick => 640 << 20,
        Detail::Full => 2 << 30,
    }
}

/// All cases, the most telling first: every operation's most used form on all graphs, then others.
pub(super) fn cases(effort: &Effort) -> Vec<Case> {
    let own = |op: &Operation| table(op.id).is_some_and(|table| table.like.is_none());
    let wanted = |op: &&Operation| match &effort.only {
        Some(only) => only.contains(&op.id),
        None => op.tuned && own(op),
    };
    let forms = OPERATIONS.iter().map(|op| op.forms.len()).max().unwrap_or(0);
    let forms = if effort.detail == Detail::Glimpse { forms.min(1) } else { forms };
    let mut all = Vec::new();
    for form in 0..forms {
        for (_, k) in WIDTHS.iter().filter(|(detail, _)| *detail <= effort.detail) {
            // Forms that are rare get fewer widths: every other.
            if form > 0 && effort.detail == Detail::Quick && ![32, 128].contains(k) {
                continue;
            }
            for (_, graph) in GRAPHS.iter().filter(|(detail, _)| *detail <= effort.detail) {
                // What has no columns is measured at the first width alone.
                let counts = |op: &&Operation| op.wide || *k == WIDTHS[0].1;
                for op in OPERATIONS.iter().filter(wanted).filter(counts) {
                    let Some(form) = op.forms.get(form) else { continue };
                    let outer = if op.outer.is_empty() { &[0] } else { op.outer };
                    for &n in outer {
                        let case = Case { op, graph, form: *form, k: *k, n };
                        if case.bytes() <= most_bytes(effort.detail) {
                            all.push(case);
                        }
                    }
                }
            }
        }
    }
    all
}

impl Case {
    /// About how many bytes a kernel gathers, or what takes as long in a dense product.
    fn bytes(&self) -> usize {
        let entries = entries_of(self.graph);
        let n = if self.n == 0 { self.k } else { self.n };
        // Eight entries a node, and a product in half the time of a byte.
        if self.op.outer.is_empty() { entries * self.k * 4 } else { entries / 8 * self.k * n / 2 }
    }
}

/// About how many entries a graph of [`GRAPHS`] has, from its name.
fn entries_of(graph: &str) -> usize {
    let edges = graph.split(',').find_map(|part| part.strip_prefix("e=")).unwrap_or("320k");
    let (number, unit) = edges.split_at(edges.len() - 1);
    let unit = if unit == "M" { 1_000_000 } else { 1000 };
    2 * unit * number.parse::<usize>().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_detail_is_more_cases() {
        let count = |detail| cases(&Effort { seconds: 1.0, detail, only: None }).len();
        let [glimpse, quick, full] = [Detail::Glimpse, Detail::Quick, Detail::Full].map(count);
        assert!(0 < glimpse && glimpse < quick && quick < full, "{glimpse} {quick} {full}");
        assert_eq!(entries_of("rmat:n=2k,e=16k,seed=1"), 32_000);
        assert_eq!(entries_of("rmat:n=300k,e=4M,seed=5"), 8_000_000);
        let none = Effort { seconds: 1.0, detail: Detail::Full, only: Some(vec![]) };
        assert!(cases(&none).is_empty());
    }
}
