use super::*;

fn at(bytes: &[u8]) -> Result<Pickle<'_>> {
    load(Path::new("a.pickle"), bytes)
}

fn error(bytes: &[u8]) -> String {
    let error = at(bytes).unwrap_err().to_string();
    assert!(error.contains("byte ") && !error.contains('\n'), "{error}");
    error
}

#[test]
fn a_graph_is_read() {
    let bytes = samples::graph(&[&[1, 300], &[]]);
    let pickle = at(&bytes).unwrap();
    let pairs = pickle.pairs(pickle.root()).unwrap();
    assert_eq!(pairs.len(), 2);
    assert_eq!(pickle.items(pairs[0].1).unwrap(), [Item::Int(1), Item::Int(300)]);
    assert!(pickle.items(pairs[1].1).unwrap().is_empty());
}

#[test]
fn a_matrix_is_read() {
    let bytes = samples::csr([2, 3], &[0, 1, 2], &[2, 0], &[0.5, 2.0]);
    let pickle = at(&bytes).unwrap();
    let state = pickle.attributes(pickle.root(), Global::CsrMatrix).unwrap();
    let shape = pickle.get(state, &["_shape", "shape"]).unwrap();
    assert_eq!(pickle.shape(shape).unwrap(), [2, 3]);
    let data = pickle.array(pickle.get(state, &["data"]).unwrap()).unwrap();
    assert_eq!((data.header.shape_text(), data.raw.len()), ("(2,)".to_owned(), 8));
    assert_eq!(data.header.dtype.to_string(), "f4");
    assert!(pickle.get(state, &["nothing"]).is_err());
    assert!(pickle.pairs(pickle.root()).is_err());
}

#[test]
fn protocol_zero_and_four_are_read() {
    let zero = b"(dp0\nS'a\\x41\\n'\np1\n(lp2\nI7\naL9L\naF0.5\naI01\naVb\\u00e9\nas.";
    let pickle = at(zero).unwrap();
    let pairs = pickle.pairs(pickle.root()).unwrap();
    assert_eq!(pickle.text(pairs[0].0).unwrap(), "aA\n");
    let items = pickle.items(pairs[0].1).unwrap();
    assert_eq!(items[..4], [Item::Int(7), Item::Int(9), Item::Float(0.5), Item::Bool(true)]);
    assert_eq!(pickle.text(items[4]).unwrap(), "bé");

    let four = b"\x80\x04\x95\x1d\0\0\0\0\0\0\0\x8c\x0bcollections\x8c\x0bdefaultdict\x93\x94)R\x94K\x01J\xfe\xff\xff\xffs.";
    let pickle = at(four).unwrap();
    assert_eq!(pickle.pairs(pickle.root()).unwrap(), [(Item::Int(1), Item::Int(-2))]);
    let long = at(b"\x8a\x02\x00\xff.").unwrap();
    assert_eq!(long.root(), Item::Int(-256));
}

#[test]
fn bytes_of_python_three_are_decoded_when_looked_at() {
    let pickle = at(b"c_codecs\nencode\nX\x03\0\0\0a\xc3\xa9X\x06\0\0\0latin1\x86R.").unwrap();
    assert_eq!(pickle.bytes(pickle.root()).unwrap()[..], [b'a', 0xe9]);
    let nested = b"c_codecs\nencode\nq\0h\0X\x01\0\0\0a\x85R\x85R.";
    assert!(error(nested).contains("no text"));
}

#[test]
fn numpy_scalars_are_integers() {
    let bytes = b"cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nU\x02i8K\0K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tbU\x08\x05\0\0\0\0\0\0\0\x86R.";
    let pickle = at(bytes).unwrap();
    assert_eq!(pickle.int(pickle.root()).unwrap(), 5);
    assert!(pickle.bytes(pickle.root()).is_err());
}

#[test]
fn nothing_is_executed() {
    let told = error(b"cos\nsystem\n(S'echo'\ntR.");
    assert!(told.contains("byte 0: the pickle asks for os.system; only"), "{told}");
    assert!(error(b"\x80\x04\x8c\x02os\x8c\x06system\x93.").contains("os.system"));
    assert!(error(b"(S'x'\nios\nsystem\n.").contains("os.system"));
    assert!(error(b"c__builtin__\neval\n.").contains("__builtin__.eval"));
    assert!(error(b"cnumpy\nload\n.").contains("numpy.load"));
    assert!(error(b"P0\n.").contains("a persistent object"));
    assert!(error(b"\x82\x01.").contains("a registered extension"));
    assert!(error(b"K\x01)R.").contains("no class or function"));
    assert!(error(b"ccopy_reg\n_reconstructor\nc__builtin__\nobject\n\x85R.").contains("rebuilds"));
}

#[test]
fn damage_is_told_with_its_place() {
    for (bytes, part) in [
        (&b""[..], "byte 0: the pickle ends at byte 0"),
        (b"K", "byte 0: the pickle ends at byte 1"),
        (b"N", "byte 1: the pickle ends"),
        (b".", "byte 0: the pickle takes more"),
        (b"(.", "byte 1: the pickle takes more"),
        (b"t.", "goes back to a mark"),
        (b"h\x05.", "refers to 5, which it never kept"),
        (b"q\x05.", "top of an empty stack"),
        (b"K\x01K\x02a.", "byte 4: the pickle adds to something"),
        (b"}K\x01a.", "adds to something"),
        (b"}(K\x01u.", "a key without a value"),
        (b"NNb.", "takes none"),
        (b"T\xff\xff\xff\xffx", "before this opcode does"),
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\xffx", "before this opcode does"),
        (b"\x8b\xff\xff\xff\x7f.", "before this opcode does"),
        (b"\x8a\x09123456789.", "an integer of 9 bytes"),
        (b"Iabc\n.", "'abc' is not an integer"),
        (b"I1", "ends at byte 2"),
        (b"Sx\n.", "no quotes"),
        (b"S'\\x4'\n.", "a bad escape"),
        (b"V\\ud800\n.", "a bad escape"),
        (b"\x80\x09.", "protocol 9"),
        (b"\xff", "0xff is no opcode"),
    ] {
        let told = error(bytes);
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn deep_nesting_and_shared_values_cost_no_more_than_their_bytes() {
    // Many lists, each in the next: too many are refused; neither reading nor dropping them recurses.
    let nested =
        |depth: usize| [b"]".repeat(depth), b"a".repeat(depth - 1), b".".to_vec()].concat();
    assert!(error(&nested(1_000_000)).contains("more lists and tuples"));
    let deep = nested(60_000);
    let pickle = at(&deep).unwrap();
    assert_eq!(pickle.items(pickle.root()).unwrap().len(), 1);
    // Thirty lists, each ten times the one before: ten to the thirty items if they were copied.
    let mut laughs = b"]q\0".to_vec();
    for level in 0..30u8 {
        laughs.extend(b"](");
        laughs.extend([b'h', level].repeat(10));
        laughs.extend([b'e', b'q', level + 1]);
    }
    laughs.push(b'.');
    let pickle = at(&laughs).unwrap();
    assert_eq!(pickle.items(pickle.root()).unwrap().len(), 10);
    // A list that holds itself.
    let pickle = at(b"]q\0h\0a.");
    assert!(pickle.is_ok());
}

#[test]
fn every_damaged_sample_is_an_answer() {
    let samples = [
        samples::csr([2, 3], &[0, 1, 2], &[2, 0], &[0.5, 2.0]),
        samples::one_hot(&[0, 1], 2),
        samples::graph(&[&[1], &[0, 300]]),
    ];
    for bytes in samples {
        let look = |bytes: &[u8]| {
            if let Ok(pickle) = at(bytes) {
                let root = pickle.root();
                let _ = (pickle.array(root).is_ok(), pickle.pairs(root).is_ok());
                if let Ok(state) = pickle.attributes(root, Global::CsrMatrix) {
                    for (_, value) in state {
                        let _ = pickle.array(*value);
                    }
                }
            }
        };
        for length in 0..bytes.len() {
            assert!(at(&bytes[..length]).is_err());
        }
        for place in 0..bytes.len() {
            for value in 0..=255 {
                let mut damaged = bytes.clone();
                damaged[place] = value;
                look(&damaged);
            }
        }
    }
}
