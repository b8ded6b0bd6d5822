//! Each way to treat self-loops, on one graph that has every case.

use lacis_core::{Coo, Csr, Extent, Graph, Repeats, SelfLoops, Threads};

/// Node 0 has two loops (3 and 4), node 1 none, node 2 one of weight 5.
fn weighted() -> Csr {
    let (rows, cols) = ([0, 0, 0, 1, 2], [0, 0, 1, 0, 2]);
    let values = [3.0, 4.0, 1.0, 2.0, 5.0];
    let threads = Threads::one();
    let coo = Coo::from_slices(&rows, &cols, Some(&values), &threads).unwrap();
    let extent = Extent { n_rows: Some(3), n_cols: Some(3) };
    coo.into_csr(extent, Repeats::Keep, &threads).unwrap()
}

fn entries(csr: &Csr) -> Vec<(usize, usize, f32)> {
    csr.entries().collect()
}

#[test]
fn removed() {
    let csr = weighted().with_self_loops(SelfLoops::Remove).unwrap();
    assert_eq!(entries(&csr), [(0, 1, 1.0), (1, 0, 2.0)]);
}

#[test]
fn added_where_missing() {
    let csr = weighted().with_self_loops(SelfLoops::AddMissing(9.0)).unwrap();
    // Of two loops the last stays, as in PyG.
    let expected = [(0, 0, 4.0), (0, 1, 1.0), (1, 0, 2.0), (1, 1, 9.0), (2, 2, 5.0)];
    assert_eq!(entries(&csr), expected);
}

#[test]
fn added_everywhere() {
    let csr = weighted().with_self_loops(SelfLoops::AddAll(1.0)).unwrap();
    assert_eq!(csr.count_self_loops(), 6);
    assert_eq!(csr.row_sums(), [9.0, 3.0, 6.0]);
}

#[test]
fn set_everywhere() {
    let csr = weighted().with_self_loops(SelfLoops::Set(1.0)).unwrap();
    let expected = [(0, 0, 1.0), (0, 1, 1.0), (1, 0, 2.0), (1, 1, 1.0), (2, 2, 1.0)];
    assert_eq!(entries(&csr), expected);
}

/// What PyG's functions return for this list: the edges that stay, then a loop per node.
#[test]
fn the_callers_order_is_that_of_the_list_with_loops() {
    let edges = [(1, 0), (0, 0), (0, 1), (1, 1), (1, 0)];
    let graph = Graph::from_edges(2, &edges).unwrap();
    let list = |loops| {
        let csr = graph.adjacency().with_self_loops(loops).unwrap();
        assert!(csr.values().is_none());
        let index = Graph::new(csr).to_edge_index();
        index.columns().into_iter().map(|c| (c[0], c[1])).collect::<Vec<_>>()
    };
    let kept = [(1, 0), (0, 1), (1, 0)];
    let loops = [(0, 0), (1, 1)];
    assert_eq!(list(SelfLoops::Remove), kept);
    assert_eq!(list(SelfLoops::AddMissing(1.0)), [&kept[..], &loops].concat());
    assert_eq!(list(SelfLoops::Set(1.0)), [&kept[..], &loops].concat());
    let all: Vec<_> = edges.iter().map(|&(u, v)| (i64::from(u), i64::from(v))).collect();
    assert_eq!(list(SelfLoops::AddAll(1.0)), [&all[..], &loops].concat());
}

#[test]
fn rectangular_matrices_have_none() {
    assert!(Csr::empty(2, 3).unwrap().with_self_loops(SelfLoops::Remove).is_err());
}
