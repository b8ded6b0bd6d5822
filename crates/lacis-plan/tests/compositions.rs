//! Counts that the literature gives for bracketings of chains.

use lacis_plan::compose::{Chain, compositions, factors};
use lacis_plan::expr::{adjacency, degrees, features, param};
use lacis_plan::op::Graph;

#[test]
fn the_bare_gcn_chain_has_twelve_compositions_of_which_four_are_kept() {
    let g = Graph::NORMALISED;
    let (d1, a, d0) = (degrees(g, 1, -1), adjacency(g, 0), degrees(g, 0, -1));
    let y = d1 * a * d0 * features(8) * param("W", 8, 4);
    y.check().unwrap();
    let chain = factors(&y);
    let found = compositions(&Chain::new(&chain), 10_000);
    assert_eq!((found.enumerated, found.kept.len()), (12, 4));
}

#[test]
fn two_hops_multiply_no_two_sparse_matrices() {
    let g = Graph::NORMALISED;
    let n = |l: u16| degrees(g, l + 1, -1) * adjacency(g, l) * degrees(g, l, -1);
    let y = n(1) * n(0) * features(8) * param("W", 8, 4);
    y.check().unwrap();
    let chain = factors(&y);
    let found = compositions(&Chain::new(&chain), 10_000);
    assert_eq!((found.enumerated, found.kept.len()), (164, 8));
}
