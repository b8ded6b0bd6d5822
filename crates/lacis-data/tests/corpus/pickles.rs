//! Pickles as Python 2 wrote them (protocol 2), made by hand.

/// `csr_matrix` of f4 data and i4 indices.
pub fn csr(shape: [u16; 2], indptr: &[i32], indices: &[i32], data: &[f32]) -> Vec<u8> {
    let mut out = b"\x80\x02cscipy.sparse.csr\ncsr_matrix\nq\x01)\x81q\x02}q\x03(".to_vec();
    out.extend(b"U\x06formatq\x04U\x03csrU\x06_shapeq\x05");
    shape.iter().for_each(|extent| int(&mut out, *extent));
    out.extend(b"\x86U\x06indptrq\x06");
    let bytes = |items: &[i32]| items.iter().flat_map(|i| i.to_le_bytes()).collect::<Vec<u8>>();
    array(&mut out, "i4", &[indptr.len() as u16], &bytes(indptr));
    out.extend(b"U\x08maxprintq\x0dK2U\x07indicesq\x0e");
    array(&mut out, "i4", &[indices.len() as u16], &bytes(indices));
    out.extend(b"U\x04dataq\x0f");
    let raw: Vec<u8> = data.iter().flat_map(|v| v.to_le_bytes()).collect();
    array(&mut out, "f4", &[data.len() as u16], &raw);
    out.extend(b"ub.");
    out
}

/// An array of i4 with one row per item.
pub fn one_hot(classes: &[usize], count: usize) -> Vec<u8> {
    let mut out = b"\x80\x02".to_vec();
    let row = |&class: &usize| (0..count).map(move |at| i32::from(at == class));
    let raw: Vec<u8> = classes.iter().flat_map(row).flat_map(i32::to_le_bytes).collect();
    array(&mut out, "i4", &[classes.len() as u16, count as u16], &raw);
    out.push(b'.');
    out
}

/// `defaultdict(list)` of neighbours.
pub fn graph(neighbours: &[&[u16]]) -> Vec<u8> {
    let mut out =
        b"\x80\x02ccollections\ndefaultdict\nq\x01c__builtin__\nlist\nq\x02\x85Rq\x03(".to_vec();
    for (node, list) in (0..).zip(neighbours) {
        int(&mut out, node);
        out.extend(b"]q\x04(");
        list.iter().for_each(|other| int(&mut out, *other));
        out.push(b'e');
    }
    out.extend(b"u.");
    out
}

fn int(out: &mut Vec<u8>, value: u16) {
    match u8::try_from(value) {
        Ok(small) => out.extend([b'K', small]),
        Err(_) => {
            out.push(b'M');
            out.extend(value.to_le_bytes());
        }
    }
}

/// A numpy array, reconstructed and then given its state.
pub fn array(out: &mut Vec<u8>, dtype: &str, shape: &[u16], raw: &[u8]) {
    out.extend(b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x09(K\x01(");
    shape.iter().for_each(|extent| int(out, *extent));
    out.extend(b"tcnumpy\ndtype\nq\x0aU\x02");
    out.extend(dtype.as_bytes());
    out.extend(
        b"K\x00K\x01\x87Rq\x0b(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T",
    );
    out.extend((raw.len() as u32).to_le_bytes());
    out.extend(raw);
    out.extend(b"tb");
}
