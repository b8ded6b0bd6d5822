//! Norms, columns and smaller matrices against obvious loops.

use lacis_core::{Coo, Csr, Dense, Extent, Repeats, Rng, Threads};
use lacis_kernels::sampled::{
    Bands, Diagonal, Scaled, band_entries, columns, row_norms, sliced, sliced_in_bands,
    some_row_norms, some_rows,
};
use lacis_kernels::{Isa, Mat};

/// A matrix with empty rows and columns, repeated entries, a diagonal and a long row.
fn matrix(n: usize, valued: bool) -> Csr {
    let mut stream = Rng::new(4, "matrix").stream(n as u64);
    let (mut rows, mut cols) = (Vec::new(), Vec::new());
    for i in 0..n as u32 {
        let length = if i % 5 == 2 { 0 } else { 1 + stream.below(7) };
        let length = if i == 1 { 3 * n } else { length };
        for _ in 0..length {
            rows.push(i);
            cols.push(stream.below_u32(n as u32 / 2 + 1));
        }
        if i % 3 == 0 {
            rows.push(i);
            cols.push(i);
        }
    }
    let values: Vec<f32> = rows.iter().map(|_| stream.normal() as f32).collect();
    let threads = Threads::one();
    let coo = Coo::from_slices(&rows, &cols, valued.then_some(&values[..]), &threads).unwrap();
    let extent = Extent { n_rows: Some(n), n_cols: Some(n) };
    coo.into_csr(extent, Repeats::Keep, &threads).unwrap()
}

fn dense(a: &Csr) -> Vec<f64> {
    let mut all = vec![0.0; a.n_rows() * a.n_cols()];
    for i in 0..a.n_rows() {
        for e in a.row(i) {
            let value = a.values().map_or(1.0, |values| values[e]);
            all[i * a.n_cols() + a.cols()[e] as usize] += f64::from(value);
        }
    }
    all
}

fn factors(n: usize, zeros: bool) -> Vec<f32> {
    let factor = |i: usize| if zeros && !i.is_multiple_of(3) { 0.0 } else { 0.5 + (i % 4) as f32 };
    (0..n).map(factor).collect()
}

#[test]
fn norms_are_norms_on_every_instruction_set() {
    for width in [0, 1, 3, 16, 17, 40, 64] {
        let x = Dense::from_fn(50, width, |i, j| ((i * 31 + j * 7) % 13) as f64 - 6.0);
        let truth: Vec<f64> =
            x.rows().map(|row| row.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt()).collect();
        for isa in Isa::available() {
            let mut norms = vec![0.0; 50];
            row_norms(isa, Mat::from(&x), &mut norms, &Threads::new(2).unwrap()).unwrap();
            for (norm, truth) in norms.iter().zip(&truth) {
                assert!((f64::from(*norm) - truth).abs() <= 1e-6 * truth.max(1.0));
            }
            let some = some_row_norms(isa, Mat::from(&x), &[7, 3]);
            assert_eq!(some, [norms[7], norms[3]]);
        }
        assert!(row_norms(Isa::best(), Mat::from(&x), &mut [0.0], &Threads::one()).is_err());
    }
}

#[test]
fn columns_have_their_norms_and_lengths() {
    for (n, valued) in [(1, false), (30, false), (30, true), (400, true)] {
        let a = matrix(n, valued);
        let (left, right) = (factors(n, false), factors(n, false));
        for without_diagonal in [false, true] {
            let of = Scaled { a: a.view(), values: None, left: Some(&left), right: Some(&right) };
            let found = columns(&of, without_diagonal, &Threads::one());
            assert_eq!(found, columns(&of, without_diagonal, &Threads::new(3).unwrap()));
            let (mut squares, mut entries, mut diagonal) = (vec![0.0; n], vec![0; n], 0);
            for (i, &by) in left.iter().enumerate() {
                for e in a.row(i) {
                    let j = a.cols()[e] as usize;
                    diagonal += usize::from(i == j);
                    if i != j || !without_diagonal {
                        let value = a.values().map_or(1.0, |values| values[e]);
                        squares[j] += f64::from(by * value * right[j]).powi(2);
                        entries[j] += 1;
                    }
                }
            }
            assert_eq!((found.entries, found.diagonal), (entries, diagonal));
            for (norm, square) in found.norms.iter().zip(&squares) {
                assert!((f64::from(*norm) - square.sqrt()).abs() <= 1e-4 * square.sqrt().max(1.0));
            }
        }
    }
}

#[test]
fn a_smaller_matrix_has_the_columns_that_stay() {
    for (n, valued) in [(1, false), (30, false), (30, true), (3000, true)] {
        let a = matrix(n, valued);
        let (stays, right) = (factors(n, true), factors(n, false));
        for diagonal in [Diagonal::Sampled, Diagonal::Exact] {
            let of = Scaled { a: a.view(), values: None, left: None, right: Some(&right) };
            let small = sliced(&of, &stays, diagonal, &Threads::one()).unwrap();
            let again = sliced(&of, &stays, diagonal, &Threads::new(3).unwrap()).unwrap();
            assert!(small.same_entries(&again));
            let kept = |i: usize, j: usize| match diagonal {
                Diagonal::Exact if i == j => 1.0,
                _ => f64::from(stays[j]),
            };
            if n <= 30 {
                let truth = dense(&a);
                for (at, (found, all)) in dense(&small).iter().zip(&truth).enumerate() {
                    let (i, j) = (at / n, at % n);
                    let expected = all * f64::from(right[j]) * kept(i, j);
                    assert!((found - expected).abs() <= 1e-5 * expected.abs().max(1.0));
                }
            }
            let entries = (0..n).flat_map(|i| a.row_cols(i).iter().map(move |&j| (i, j as usize)));
            assert_eq!(small.nnz(), entries.filter(|&(i, j)| kept(i, j) != 0.0).count());
        }
    }
    let a = matrix(10, false);
    let of = Scaled { a: a.view(), values: None, left: None, right: None };
    assert!(sliced(&of, &[1.0], Diagonal::Sampled, &Threads::one()).is_err());
}

#[test]
fn a_column_may_stay_in_some_bands() {
    let n = 300;
    let (a, own) = (matrix(n, true), [0_u32, 3, 9, 10]);
    let of = Scaled { a: a.view(), values: None, left: None, right: None };
    for (rows, diagonal) in [(1, Diagonal::Sampled), (7, Diagonal::Exact), (400, Diagonal::Exact)] {
        let bands = n.div_ceil(rows);
        let counts = band_entries(&of, (&own, rows), diagonal, &Threads::one());
        assert_eq!(counts, band_entries(&of, (&own, rows), diagonal, &Threads::new(3).unwrap()));
        let stays = |i: usize, j: u32| diagonal == Diagonal::Exact && i == j as usize;
        let mut expected = vec![0; bands * own.len()];
        for i in 0..n {
            for j in a.row_cols(i).iter().filter(|&&j| !stays(i, j)) {
                if let Ok(at) = own.binary_search(j) {
                    expected[i / rows * own.len() + at] += 1;
                }
            }
        }
        assert_eq!(counts, expected);

        let mut factors = factors(n, true);
        own.iter().for_each(|&j| factors[j as usize] = -2.0);
        let cells = own.iter().flat_map(|&j| (0..bands as u32).map(move |band| [j, band]));
        let taken: Vec<[u32; 2]> = cells.filter(|[j, band]| (j + band) % 2 == 0).collect();
        let cut = Bands { rows, taken };
        let small =
            sliced_in_bands(&of, (&factors, Some(&cut)), diagonal, &Threads::new(2).unwrap());
        let (small, truth) = (dense(&small.unwrap()), dense(&a));
        for (at, (found, all)) in small.iter().zip(&truth).enumerate() {
            let (i, j) = (at / n, (at % n) as u32);
            let factor = match own.binary_search(&j) {
                _ if stays(i, j) => 1.0,
                Ok(_) => f64::from(2 * u8::from((j as usize + i / rows).is_multiple_of(2))),
                Err(_) => f64::from(factors[j as usize]),
            };
            assert!((found - all * factor).abs() <= 1e-5 * all.abs().max(1.0), "{i}, {j}");
        }
    }
}

#[test]
fn some_rows_are_those_rows() {
    let a = matrix(30, true);
    let right = factors(30, false);
    let of = Scaled { a: a.view(), values: None, left: None, right: Some(&right) };
    let some = some_rows(&of, &[4, 1, 4]).unwrap();
    let all = sliced(&of, &[1.0; 30], Diagonal::Sampled, &Threads::one()).unwrap();
    for (at, row) in [4, 1, 4].into_iter().enumerate() {
        assert_eq!(some.row_cols(at), all.row_cols(row));
        assert_eq!(&some.values().unwrap()[some.row(at)], &all.values().unwrap()[all.row(row)]);
    }
}
