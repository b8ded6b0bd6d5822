//! A rectangular grid: node `r·cols + c` is next to those left, right, above and below.

use lacis_core::{Dataset, Result};

use super::Spec;
use super::draw::{check_features, decorated, symmetric};
use crate::Job;

pub(super) fn check(spec: &Spec) -> std::result::Result<(), String> {
    let n = spec.long("rows") * spec.long("cols");
    if n > u64::from(u32::MAX) {
        return Err(format!("{n} nodes are more than {}", u32::MAX));
    }
    check_features(n, spec.long("features"))
}

pub(super) fn make(spec: &Spec, job: &Job) -> Result<Dataset> {
    let (rows, cols) = (spec.count("rows"), spec.count("cols"));
    let graph = symmetric(rows * cols, rows * cols, job, |nodes, edges| {
        for node in nodes {
            let (row, col) = (node / cols, node % cols);
            if col + 1 < cols {
                edges.push(node as u32, node as u32 + 1);
            }
            if row + 1 < rows {
                edges.push(node as u32, (node + cols) as u32);
            }
        }
    })?;
    decorated(spec, graph, job)
}

#[cfg(test)]
mod tests {
    use crate::generate::tests::made;

    #[test]
    fn neighbours_are_beside_and_below() {
        let set = made("grid:rows=3,cols=4");
        assert_eq!(set.graph().n_edges(), 2 * (3 * 3 + 2 * 4));
        assert_eq!(set.graph().adjacency().row_cols(5), [1, 4, 6, 9]);
    }
}
