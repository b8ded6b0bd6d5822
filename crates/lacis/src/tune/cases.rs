//! Which problems are measured.

use std::collections::BTreeMap;

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

/// Graphs by detail: in the last cache, beyond it, in a core's; sparse, dense, without hubs.
const GRAPHS: &[(Detail, &str)] = &[
    (Detail::Quick, "rmat:n=20k,e=160k,seed=2"),
    (Detail::Quick, "rmat:n=120k,e=500k,seed=3"),
    (Detail::Glimpse, "rmat:n=2k,e=16k,seed=1"),
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

/// What models spend their time on is measured on so many problems for one of any other.
const SHARES: &[(&str, usize)] = &[("spmm", 4), ("matmul", 3), ("attention", 2)];

/// Bytes that a kernel may gather in one run, by detail.
fn most_bytes(detail: Detail) -> usize {
    match detail {
        Detail::Glimpse => 32 << 20,
        Detail::Quick => 640 << 20,
        Detail::Full => 2 << 30,
    }
}

/// All cases, the most telling first, because time may end: of every operation the most used form,
/// widths and graphs mixed, and more of those that matter more.
pub(super) fn cases(effort: &Effort) -> Vec<Case> {
    let mut ranked: Vec<(usize, Case)> = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = unordered(effort);
    // Small widths on large graphs as early as large widths on small ones, and the gradient's form
    // soon after the other.
    all.sort_by_key(|(form, place, _)| (form + place, *form));
    for (_, _, case) in all {
        let share = SHARES.iter().find(|(op, _)| *op == case.op.id).map_or(1, |(_, share)| *share);
        let count = counts.entry(case.op.id).or_default();
        *count += 1;
        // Twelve can be shared by two, three and four.
        ranked.push((12 * *count / share, case));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, case)| case).collect()
}

/// All cases with the numbers of their forms, and how far down the lists of widths and graphs.
fn unordered(effort: &Effort) -> Vec<(usize, usize, Case)> {
    let own = |op: &Operation| table(op.id).is_some_and(|table| table.like.is_none());
    let wanted = |op: &&Operation| match &effort.only {
        Some(only) => only.contains(&op.id),
        None => op.tuned && own(op),
    };
    let forms = OPERATIONS.iter().map(|op| op.forms.len()).max().unwrap_or(0);
    let forms = if effort.detail == Detail::Glimpse { forms.min(1) } else { forms };
    let mut all = Vec::new();
    for form in 0..forms {
        let widths = WIDTHS.iter().filter(|(detail, _)| *detail <= effort.detail);
        for (down, (_, k)) in widths.enumerate() {
            // Forms that are rare get fewer widths: every other.
            if form > 0 && effort.detail == Detail::Quick && ![32, 128].contains(k) {
                continue;
            }
            let graphs = GRAPHS.iter().filter(|(detail, _)| *detail <= effort.detail);
            for (place, (_, graph)) in graphs.enumerate() {
                // What has no columns is measured at the first width alone.
                let counts = |op: &&Operation| op.wide || *k == WIDTHS[0].1;
                for op in OPERATIONS.iter().filter(wanted).filter(counts) {
                    let Some(own) = op.forms.get(form) else { continue };
                    let outer = if op.outer.is_empty() { &[0] } else { op.outer };
                    for &n in outer {
                        // As many columns as rows is asked for by 0.
                        if n == *k {
                            continue;
                        }
                        let case = Case { op, graph, form: *own, k: *k, n };
                        if case.bytes() <= most_bytes(effort.detail) {
                            all.push((form, down + place, case));
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
        // Without a dense operand the graph is multiplied by itself: its walks of two edges count,
        // and the more nodes there are, the more of them pass by hubs.
        if !self.op.wide {
            let nodes = number(self.graph, "n=", 100_000);
            return entries * (entries / nodes) * nodes.isqrt();
        }
        // Eight entries a node, and a product in half the time of a byte.
        if self.op.outer.is_empty() { entries * self.k * 4 } else { entries / 8 * self.k * n / 2 }
    }
}

/// About how many entries a graph of [`GRAPHS`] has, from its name.
fn entries_of(graph: &str) -> usize {
    2 * number(graph, "e=", 320_000)
}

/// A number in a graph's name, as `2k` or `4M`, or what to take where it has none.
fn number(graph: &str, key: &str, absent: usize) -> usize {
    let found = graph.split([',', ':']).find_map(|part| part.strip_prefix(key));
    let Some((digits, unit)) = found.and_then(|text| text.split_at_checked(text.len() - 1)) else {
        return absent;
    };
    let unit = if unit == "M" { 1_000_000 } else { 1000 };
    unit * digits.parse::<usize>().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cases_say_most_of_what_matters() {
        let quick = cases(&Effort { seconds: 1.0, detail: Detail::Quick, only: None });
        let first = || quick[..32].iter();
        let of = |op: &str| first().filter(|case| case.op.id == op).count();
        assert!(of("spmm") > of("matmul") && of("matmul") > of("segment_sum"));
        // Wide rows of a graph that no cache holds are among them.
        assert!(
            first().any(|case| case.op.id == "spmm" && case.k >= 64 && case.graph.contains("120k"))
        );
    }

    #[test]
    fn squares_of_graphs_are_small_where_time_is_short() {
        let quick = cases(&Effort { seconds: 1.0, detail: Detail::Quick, only: None });
        let squared: Vec<_> = quick.iter().filter(|case| case.op.id == "spgemm").collect();
        assert!(!squared.is_empty());
        assert!(squared.iter().all(|case| case.graph.contains("n=2k")));
    }

    #[test]
    fn more_detail_is_more_cases() {
        let count = |detail| cases(&Effort { seconds: 1.0, detail, only: None }).len();
        let [glimpse, quick, full] = [Detail::Glimpse, Detail::Quick, Detail::Full].map(count);
        assert!(0 < glimpse && glimpse < quick && quick < full, "{glimpse} {quick} {full}");
        assert_eq!(entries_of("rmat:n=2k,e=16k,seed=1"), 32_000);
        assert_eq!(entries_of("rmat:n=300k,e=4M,seed=5"), 8_000_000);
        assert_eq!(number("rmat:n=300k,e=4M,seed=5", "n=", 1), 300_000);
        assert_eq!(number("grid:rows=400,cols=400", "n=", 1), 1);
        let none = Effort { seconds: 1.0, detail: Detail::Full, only: Some(vec![]) };
        assert!(cases(&none).is_empty());
    }
}
