//! [`Coo`] against a stable sort, for any chunks and threads.

use lacis_core::{
    Buffer, Chunk, Coo, Csr, CsrParts, Extent, Graph, Repeats, RowPtr, Tags, Threads,
};
use proptest::prelude::*;

type Entry = (u32, u32, f32);

fn csr_by_hand(entries: &[Entry], n_rows: usize, n_cols: usize, repeats: Repeats) -> Csr {
    let mut sorted = entries.to_vec();
    sorted.sort_by_key(|&(i, j, _)| (i, j));
    let groups = sorted.chunk_by(|a, b| repeats != Repeats::Keep && (a.0, a.1) == (b.0, b.1));
    let merged: Vec<Entry> = groups
        .map(|group| {
            let sum = group.iter().map(|e| e.2).reduce(|a, b| a + b).unwrap();
            (group[0].0, group[0].1, if repeats == Repeats::Sum { sum } else { group[0].2 })
        })
        .collect();
    let row_ptr: Vec<u64> =
        (0..=n_rows).map(|i| merged.iter().filter(|e| (e.0 as usize) < i).count() as u64).collect();
    let parts = CsrParts {
        n_cols,
        row_ptr: RowPtr::Wide(row_ptr.into()),
        cols: merged.iter().map(|e| e.1).collect::<Vec<_>>().into(),
        values: Some(merged.iter().map(|e| e.2).collect::<Vec<_>>().into()),
        order: None,
    };
    Csr::new(parts, &Threads::one()).unwrap()
}

fn coo(entries: &[Entry], chunk_size: usize, threads: &Threads) -> Coo {
    let mut coo = Coo::new(Tags::Values);
    let chunks = entries.chunks(chunk_size).collect();
    coo.extend(chunks, threads, |entries: &[Entry], chunk: &mut Chunk| {
        entries.iter().for_each(|&(i, j, v)| chunk.push_tagged(i, j, v.to_bits()));
        Ok(())
    })
    .unwrap();
    coo
}

/// Matrices with skewed rows: half of the entries in a tenth of them.
fn entries() -> impl Strategy<Value = (usize, usize, Vec<Entry>)> {
    (1..3000usize, 1..3000usize).prop_flat_map(|(n_rows, n_cols)| {
        let row = prop_oneof![0..n_rows.div_ceil(10), 0..n_rows];
        let entry = (row, 0..n_cols, -3i8..4)
            .prop_map(|(i, j, v)| (i as u32, j as u32, f32::from(v) * 0.3));
        (Just(n_rows), Just(n_cols), prop::collection::vec(entry, 0..2000))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_chunks_and_threads_give_the_sorted_matrix(
        (n_rows, n_cols, entries) in entries(),
        chunk_size in 1..700usize,
    ) {
        let extent = Extent { n_rows: Some(n_rows), n_cols: Some(n_cols) };
        for repeats in [Repeats::Keep, Repeats::Merge, Repeats::Sum] {
            let expected = csr_by_hand(&entries, n_rows, n_cols, repeats);
            for count in [1, 3] {
                let threads = Threads::new(count).unwrap();
                let csr = coo(&entries, chunk_size, &threads).into_csr(extent, repeats, &threads);
                prop_assert!(csr.unwrap().same_entries(&expected), "{repeats:?}, {count} threads");
            }
        }
    }

    #[test]
    fn transposing_is_exact_and_its_own_inverse((n_rows, n_cols, entries) in entries()) {
        let threads = Threads::new(2).unwrap();
        let a = csr_by_hand(&entries, n_rows, n_cols, Repeats::Keep);
        let turned: Vec<Entry> = a.entries().map(|(i, j, v)| (j as u32, i as u32, v)).collect();
        let expected = csr_by_hand(&turned, n_cols, n_rows, Repeats::Keep);
        let t = a.transpose(&threads);
        prop_assert!(t.same_entries(&expected));
        prop_assert!(t.transpose(&threads).same_entries(&a));

        let ordered = a.transpose_with_order(&threads).unwrap();
        for (e, &at) in ordered.order().unwrap().iter().enumerate() {
            prop_assert_eq!(ordered.value(e), a.value(at as usize));
        }
    }

    #[test]
    fn from_edges_remembers_the_callers_order(
        edges in prop::collection::vec((0..50u32, 0..50u32), 0..300)
    ) {
        let graph = Graph::from_edges(50, &edges).unwrap();
        let back = graph.to_edge_index();
        let back: Vec<_> = back.columns().into_iter().map(|c| (c[0] as u32, c[1] as u32)).collect();
        prop_assert_eq!(&back, &edges);
        let again = Graph::from_edge_index(50, graph.to_edge_index().view()).unwrap();
        prop_assert!(again.adjacency().same_entries(graph.adjacency()));

        // Through the transpose and back the order is still the caller's.
        let threads = Threads::one();
        let twice = graph.adjacency().transpose(&threads).transpose(&threads);
        let by_order = |csr: &Csr| {
            let mut all: Vec<_> = csr.order().unwrap().iter().copied().zip(csr.entries()).collect();
            all.sort_by_key(|(at, _)| *at);
            all
        };
        prop_assert_eq!(by_order(&twice), by_order(graph.adjacency()));
    }
}

#[test]
fn large_lists_take_the_radix_path_and_agree() {
    let rng = lacis_core::Rng::new(1, "test");
    let entries: Vec<Entry> = (0..200_000)
        .map(|e| {
            let [a, b, c, _] = rng.block(e);
            (a % 70_000 * (b % 2), b % 1_000_000, (c % 16) as f32)
        })
        .collect();
    let extent = Extent { n_rows: Some(70_000), n_cols: Some(1_000_000) };
    let mut sorted = entries.clone();
    sorted.sort_by_key(|&(i, j, _)| (i, j));
    for count in [1, 2, 7] {
        let threads = Threads::new(count).unwrap();
        let csr =
            coo(&entries, 30_000, &threads).into_csr(extent, Repeats::Keep, &threads).unwrap();
        let found: Vec<Entry> = csr.entries().map(|(i, j, v)| (i as u32, j as u32, v)).collect();
        assert!(found == sorted, "{count} threads");
    }
}

/// Lists that are cut into more chunks and blocks than their entries would need, of places with
/// short keys and long ones, and how many bits of a column are sorted with the rows.
#[test]
fn lists_whose_length_is_known_agree() {
    let rng = lacis_core::Rng::new(2, "test");
    let shapes = [(300, 500, 40_000), (9_000, 12_000, 60_000), (2_000_000, 3_000_000, 30_000)];
    for (n_rows, n_cols, len) in shapes {
        // A quarter of the entries are in a few rows; many come twice.
        let entry = |e: u64| {
            let [a, b, c, _] = rng.block(e % (len * 3 / 4));
            let row = if c % 4 == 0 { a % 3 } else { a % n_rows };
            (row, b % n_cols, (e % 16) as f32)
        };
        let entries: Vec<Entry> = (0..len).map(entry).collect();
        let [rows, cols] = [|e: &Entry| e.0, |e: &Entry| e.1]
            .map(|of| entries.iter().map(of).collect::<Vec<u32>>());
        let values: Vec<f32> = entries.iter().map(|e| e.2).collect();
        let mut sorted = entries.clone();
        sorted.sort_by_key(|&(i, j, _)| (i, j));
        let same = |a: &Entry, b: &Entry| (a.0, a.1) == (b.0, b.1);
        let summed: Vec<Entry> = sorted
            .chunk_by(same)
            .map(|group| (group[0].0, group[0].1, group.iter().map(|e| e.2).sum()))
            .collect();
        let extent = Extent { n_rows: Some(n_rows as usize), n_cols: Some(n_cols as usize) };
        for count in [1, 2, 7] {
            let threads = Threads::new(count).unwrap();
            for (repeats, expected) in [(Repeats::Keep, &sorted), (Repeats::Sum, &summed)] {
                let coo = Coo::from_slices(&rows, &cols, Some(&values), &threads).unwrap();
                let csr = coo.into_csr(extent, repeats, &threads).unwrap();
                let found = csr.entries().map(|(i, j, v)| (i as u32, j as u32, v));
                assert!(found.eq(expected.iter().copied()), "{repeats:?}, {count} threads");
                let turned = csr.transpose(&threads);
                assert!(turned.transpose(&threads).same_entries(&csr), "{count} threads");
            }
        }
    }
}

#[test]
fn few_entries_may_have_the_largest_places() {
    let (rows, cols) = ([u32::MAX - 1, 3], [5, u32::MAX - 1]);
    let coo = Coo::from_slices(&rows, &cols, None, &Threads::one()).unwrap();
    assert_eq!((coo.len(), coo.largest()), (2, Some([u32::MAX - 1; 2])));
}

#[test]
fn entries_outside_the_matrix_are_named() {
    let threads = Threads::one();
    let list = coo(&[(3, 0, 1.0)], 8, &threads);
    let extent = Extent { n_rows: Some(3), n_cols: None };
    let error = list.into_csr(extent, Repeats::Keep, &threads).unwrap_err();
    assert!(error.to_string().contains("row 3"), "{error}");
    let error = Graph::from_edges(3, &[(0, 1), (7, 1)]).unwrap_err();
    assert_eq!(error.to_string(), "from_edges: node 7 at position 1 is outside 0..3");
}

#[test]
fn overflow_is_an_error() {
    let threads = Threads::one();
    let list = coo(&[(u32::MAX, 0, 1.0)], 8, &threads);
    let error = list.into_csr(Extent::default(), Repeats::Keep, &threads).unwrap_err();
    assert_eq!(error.kind(), "overflow", "{error}");
    assert_eq!(Csr::empty(1 << 33, 1).unwrap_err().kind(), "overflow");
}

#[test]
fn arrays_that_are_no_matrix_are_refused() {
    let threads = Threads::one();
    let parts = |row_ptr: &[u64], cols: &[u32]| CsrParts {
        n_cols: 4,
        row_ptr: RowPtr::Wide(Buffer::copied(row_ptr)),
        cols: Buffer::copied(cols),
        values: None,
        order: None,
    };
    let refused = |row_ptr: &[u64], cols: &[u32]| {
        Csr::new(parts(row_ptr, cols), &threads).unwrap_err().to_string()
    };
    assert!(refused(&[], &[]).contains("row pointers"));
    assert!(refused(&[1, 2], &[0, 1]).contains("first row pointer"));
    assert!(refused(&[0, 2, 1, 3], &[0, 1, 2]).contains("row pointer 2 at position 1"));
    assert!(refused(&[0, 1], &[0, 1]).contains("last row pointer"));
    assert!(refused(&[0, 2], &[0, 4]).contains("column 4 at position 1 is outside 0..4"));
    assert!(refused(&[0, u64::MAX], &[0]).contains("last row pointer"));
    let mut with_values = parts(&[0, 1], &[0]);
    with_values.values = Some(Buffer::copied(&[1.0, 2.0]));
    assert!(Csr::new(with_values, &threads).is_err());
    for order in [&[1, 2][..], &[0, 0], &[0]] {
        let mut with_order = parts(&[0, 2], &[0, 1]);
        with_order.order = Some(Buffer::copied(order));
        assert!(Csr::new(with_order, &threads).is_err(), "{order:?}");
    }
}

#[test]
fn symmetry_counts_values_and_repeats() {
    let threads = Threads::one();
    let symmetric =
        |entries: &[Entry]| csr_by_hand(entries, 3, 3, Repeats::Keep).is_symmetric(&threads);
    assert!(symmetric(&[]));
    assert!(symmetric(&[(0, 1, 2.0), (1, 0, 2.0), (2, 2, 5.0)]));
    assert!(!symmetric(&[(0, 1, 2.0), (1, 0, 3.0)]));
    assert!(!symmetric(&[(0, 1, 2.0), (0, 1, 2.0), (1, 0, 2.0)]));
    assert!(!csr_by_hand(&[], 2, 3, Repeats::Keep).is_symmetric(&threads));
}

#[test]
fn a_symmetric_graph_is_its_own_transpose() {
    let threads = Threads::one();
    let line = Graph::from_edges(3, &[(0, 1), (1, 0), (1, 2), (2, 1)]).unwrap();
    let plain = Graph::new(line.adjacency().as_ref().clone().without_order());
    assert!(line.is_symmetric(&threads) && plain.is_symmetric(&threads));
    assert!(std::sync::Arc::ptr_eq(plain.transpose(&threads), plain.adjacency()));
    // Where the caller's order is known, the transpose knows it too: 0 → 1 came first.
    assert_eq!(line.adjacency().order().unwrap(), [1, 0, 3, 2]);
    assert_eq!(line.transpose(&threads).order().unwrap(), [0, 1, 2, 3]);
    let path = Graph::from_edges(3, &[(0, 1), (1, 2)]).unwrap();
    assert!(!path.is_symmetric(&threads));
    assert_eq!(path.transpose(&threads).row_cols(0), [1]);
}

#[test]
fn what_is_derived_may_be_asked_for_inside_the_pool_that_computes_it() {
    let threads = Threads::new(2).unwrap();
    let edges: Vec<(u32, u32)> = (0..5000).map(|i| (i % 70, i % 90)).collect();
    let graph = Graph::from_edges(90, &edges).unwrap();
    let found = threads.map(vec![0; 8], |_| {
        (graph.transpose(&threads).nnz(), graph.stats(&threads).nnz, graph.slices(100).len())
    });
    assert!(found.iter().all(|f| f == &found[0]));
}

#[test]
fn slices_cover_all_rows_and_balance_entries() {
    let edges: Vec<(u32, u32)> = (0..100).map(|i| (i % 10, i % 7)).collect();
    let graph = Graph::from_edges(10, &edges).unwrap();
    for size in [0, 1, 10, 30, 1000] {
        let slices = graph.slices(size);
        assert_eq!(
            slices.iter().cloned().flatten().collect::<Vec<_>>(),
            (0..10).collect::<Vec<_>>()
        );
        assert!(slices.iter().all(|rows| !rows.is_empty()));
    }
}

#[test]
fn degrees_and_their_powers() {
    use lacis_core::{DegreePower, Side};
    let threads = Threads::one();
    let graph = Graph::from_edges(3, &[(0, 1), (2, 1), (2, 1), (2, 1)]).unwrap();
    let power = |side, power| graph.degree_power(side, power, &threads).to_vec();
    assert_eq!(power(Side::Target, DegreePower::INV_SQRT), [0.0, 0.5, 0.0]);
    assert_eq!(power(Side::Source, DegreePower::INV), [1.0, 0.0, 1.0 / 3.0]);
    let with_loops = DegreePower { half_exponent: -2, added_loops: 1 };
    assert_eq!(power(Side::Target, with_loops), [1.0, 0.2, 1.0]);
}
