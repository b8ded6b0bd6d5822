use lacis_core::Threads;

use super::*;

/// The bytes of an array with a header of our choosing.
fn file(descr: &str, order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.extend(data);
    bytes
}

fn open(bytes: &[u8]) -> Result<Npy<'_, &[u8]>> {
    static ONE: std::sync::LazyLock<Threads> = std::sync::LazyLock::new(Threads::one);
    Npy::open(Source::file(Path::new("a.npy"), &Job::quiet(&ONE)), bytes)
}

fn numbers<T: Number>(bytes: &[u8]) -> Result<Array<T>> {
    open(bytes)?.numbers()
}

#[test]
fn what_is_written_is_read_back() {
    let mut bytes = Vec::new();
    write(&mut bytes, &[2, 3], &[1i64, 2, 3, 4, 5, 6]).unwrap();
    let array = numbers::<u32>(&bytes).unwrap();
    assert_eq!((&array.shape[..], &array.data[..]), (&[2, 3][..], &[1, 2, 3, 4, 5, 6][..]));
    let mut bytes = Vec::new();
    write(&mut bytes, &[2], &[true, false]).unwrap();
    assert_eq!(open(&bytes).unwrap().bools().unwrap(), (vec![2], vec![true, false]));
}

#[test]
fn many_items_arrive_in_chunks() {
    let n = 5 * CHUNK_ITEMS + 7;
    let items: Vec<i32> = (0..n as i32).collect();
    let mut bytes = Vec::new();
    write(&mut bytes, &[n], &items).unwrap();
    let array = numbers::<u32>(&bytes).unwrap();
    assert_eq!(array.data.len(), n);
    assert!(array.data.iter().zip(0..).all(|(&item, at)| item == at));
}

#[test]
fn versions_two_and_three_have_longer_lengths() {
    let one = file("'|u1'", "False", "(2,)", &[7, 8]);
    for version in [2, 3] {
        let mut bytes = one[..10].to_vec();
        bytes[6] = version;
        bytes.extend([0, 0]);
        bytes.extend(&one[10..]);
        assert_eq!(numbers::<i64>(&bytes).unwrap().data[..], [7, 8]);
    }
    let mut bytes = one;
    bytes[6] = 4;
    let error = numbers::<i64>(&bytes).unwrap_err().to_string();
    assert!(error.contains("byte 6: version 4"), "{error}");
}

#[test]
fn fortran_order_becomes_c_order() {
    let flat = file("'|u1'", "True", "(2, 3)", &[1, 4, 2, 5, 3, 6]);
    assert_eq!(numbers::<u8>(&flat).unwrap().data[..], [1, 2, 3, 4, 5, 6]);
    let deep: Vec<u8> = (0..24).collect();
    let array = numbers::<u8>(&file("'|u1'", "True", "(2, 3, 4)", &deep)).unwrap();
    for (i, j, k) in (0..24).map(|at| (at / 12, at / 4 % 3, at % 4)) {
        assert_eq!(usize::from(array.data[12 * i + 4 * j + k]), i + 2 * j + 6 * k);
    }
    assert_eq!(numbers::<u8>(&file("'|u1'", "True", "(3,)", &[1, 2, 3])).unwrap().data[1], 2);
}

#[test]
fn a_declared_size_is_not_believed() {
    for shape in ["(1000000000000,)", "(4000000000, 4000000000)", "(9, 9, 99999999999999999999)"] {
        let error = numbers::<f32>(&file("'<f8'", "False", shape, &[0; 16])).unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
    }
    let error = numbers::<f32>(&file("'<f8'", "False", "(3,)", &[0; 16])).unwrap_err().to_string();
    assert!(error.contains("the data end here"), "{error}");
    let error = numbers::<f32>(&file("'<f8'", "False", "(1,)", &[0; 16])).unwrap_err().to_string();
    assert!(error.contains("data follow the array"), "{error}");
    let empty = numbers::<f32>(&file("'<f8'", "False", "(0, 99999999999)", &[])).unwrap();
    assert!(empty.data.is_empty());
    let mut long = b"\x93NUMPY\x02\x00".to_vec();
    long.extend([0xff; 4]);
    let error = numbers::<f32>(&long).unwrap_err().to_string();
    assert!(error.contains("the header is 4294967295 bytes long"), "{error}");
}

#[test]
fn wrong_types_and_values_are_named() {
    let negative = file("'<i4'", "False", "(2,)", &[1, 0, 0, 0, 255, 255, 255, 255]);
    let error = numbers::<u32>(&negative).unwrap_err().to_string();
    assert!(error.contains("-1 at position 1 is not an index"), "{error}");
    let error = numbers::<u32>(&file("'<f4'", "False", "(1,)", &[0; 4])).unwrap_err().to_string();
    assert!(error.contains("the items are f4"), "{error}");
    let nan: Vec<u8> = [1.0, f32::NAN].iter().flat_map(|v: &f32| v.to_le_bytes()).collect();
    let error = open(&file("'<f4'", "False", "(2,)", &nan)).unwrap().finite().unwrap_err();
    assert!(error.to_string().contains("NaN at position 1"), "{error}");
    let huge = 1e300f64.to_le_bytes();
    let error = open(&file("'<f8'", "False", "(1,)", &huge)).unwrap().finite().unwrap_err();
    assert!(error.to_string().contains("inf at position 0"), "{error}");
    let object = file("'|O'", "False", "(1,)", b"cos\nsystem\n.");
    assert_eq!(open(&object).unwrap().header().dtype.kind, Kind::Object);
    let error = numbers::<f32>(&object).unwrap_err().to_string();
    assert!(error.contains("a pickle, which is not read"), "{error}");
    let error = open(&file("'|u1'", "False", "(2,)", &[1, 2])).unwrap().bools().unwrap_err();
    assert!(error.to_string().contains("2 at position 1 is neither 0 nor 1"), "{error}");
}

#[test]
fn strings_lose_their_padding() {
    let text: Vec<u8> = ['a', 'é', '\0', 'z', '\0', '\0']
        .iter()
        .flat_map(|&c| u32::from(c).to_le_bytes())
        .collect();
    let strings = open(&file("'<U3'", "False", "(2,)", &text)).unwrap().strings().unwrap();
    assert_eq!(strings, ["aé", "z"]);
    let strings = open(&file("'|S3'", "False", "(2,)", b"csra\xe9\0")).unwrap().strings();
    assert_eq!(strings.unwrap(), ["csr", "aé"]);
    let wild = file("'<U1'", "False", "(1,)", &[255; 4]);
    assert!(open(&wild).unwrap().strings().is_err());
    let endless = file("'<U0'", "False", "(99999999999999,)", &[]);
    assert!(open(&endless).unwrap().strings().is_err());
    let long = file("'|S999999999999'", "False", "(1,)", b"x");
    assert!(open(&long).unwrap().strings().is_err());
}

fn edges(bytes: &[u8]) -> Result<lacis_core::Dataset> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edges.npy");
    std::fs::write(&path, bytes).unwrap();
    read(&path, &Job::quiet(&Threads::new(2).unwrap()))
}

#[test]
fn an_edge_list_is_a_graph_in_each_layout() {
    for (order, shape, data) in [
        ("False", "(2, 4)", [0, 0, 2, 0, 1, 3, 1, 1]),
        ("True", "(4, 2)", [0, 0, 2, 0, 1, 3, 1, 1]),
        ("False", "(4, 2)", [0, 1, 0, 3, 2, 1, 0, 1]),
        ("True", "(2, 4)", [0, 1, 0, 3, 2, 1, 0, 1]),
    ] {
        let set = edges(&file("'|i1'", order, shape, &data)).unwrap();
        assert_eq!((set.graph().n_nodes(), set.graph().n_edges()), (4, 3), "{shape} {order}");
        assert_eq!(set.graph().adjacency().row_cols(1), [0, 2]);
        assert_eq!(set.graph().adjacency().row_cols(3), [0]);
        assert_eq!(set.origin().notes, ["1 repeated edge was merged"]);
        assert_eq!(set.name(), "edges");
    }
    // Two by two counts as two rows.
    let set = edges(&file("'|u1'", "False", "(2, 2)", &[0, 1, 2, 2])).unwrap();
    assert_eq!(set.graph().adjacency().row_cols(2), [0, 1]);
    let empty = edges(&file("'<i8'", "False", "(2, 0)", &[])).unwrap();
    assert_eq!((empty.graph().n_nodes(), empty.graph().n_edges()), (0, 0));
}

#[test]
fn what_is_no_edge_list_is_refused() {
    for (descr, shape, data, part) in [
        ("'<f4'", "(2, 1)", &[0; 8][..], "each should be a node number"),
        ("'|i1'", "(3, 3)", &[0; 9], "has shape (2, E) or (E, 2), and this has (3, 3)"),
        ("'|i1'", "(4,)", &[0; 4], "and this has (4,)"),
        ("'|i1'", "(2, 2)", &[0, 1, 255, 0], "-1 of edge 0 is no node number"),
        ("'|i1'", "(3, 2)", &[0, 1, 2, 0, 0, 254], "-2 of edge 2 is no node number"),
        ("'|i1'", "(2, 2)", &[0, 1, 1], "the file ends here, but 2 edges end at"),
        ("'|i1'", "(2, 1)", &[0, 1, 1], "the file ends here"),
        ("'<u4'", "(2, 1)", &[0, 0, 0, 0, 255, 255, 255, 0x7f], "nodes are not believed of"),
        ("'<u4'", "(2, 1)", &[255; 8], "nodes are not believed of"),
        ("'<i8'", "(2, 4611686018427387904)", &[], "no machine holds"),
    ] {
        let error = edges(&file(descr, "False", shape, data)).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let nowhere = read(Path::new("/nowhere/a.npy"), &Job::quiet(&Threads::one()));
    assert_eq!(nowhere.unwrap_err().kind(), "io");
    let folder = tempfile::tempdir().unwrap();
    assert!(read(folder.path(), &Job::quiet(&Threads::one())).is_err());
}

#[test]
fn a_watcher_can_stop_the_reading() {
    struct Impatient;
    impl crate::Watch for Impatient {
        fn stopped(&self) -> bool {
            true
        }
    }
    let threads = Threads::one();
    let job = Job { threads: &threads, watch: &Impatient };
    let bytes = file("'|u1'", "False", "(2,)", &[1, 2]);
    let npy = Npy::open(Source::file(Path::new("a.npy"), &job), &bytes[..]).unwrap();
    assert_eq!(npy.numbers::<u8>().unwrap_err().kind(), "interrupted");
}
