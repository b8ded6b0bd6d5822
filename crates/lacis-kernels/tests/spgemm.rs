//! Products of sparse matrices against `lacis_core::reference`: with sparse ones, and with dense
//! ones from either side.

use lacis_core::reference;
use lacis_core::{ColumnOrder, Csr, Dense, Threads};
use lacis_kernels::sparse_matmul::{self, sparse_matmul};
use lacis_kernels::spgemm::{KERNELS, spgemm};

use crate::cases::{self, THREADS, assert_close, bits, longest_row, matrices, matrix};

fn check(a: &Csr, b: &Csr) {
    let truth = reference::spgemm(a, b).unwrap();
    let products = longest_row(a) * longest_row(b);
    let tolerance = products * (products + 4.0) * f64::from(f32::EPSILON);
    let mut all: Vec<Csr> = Vec::new();
    for kernel in KERNELS {
        for count in THREADS {
            let c = kernel.run(a.view(), b.view(), &Threads::new(count).unwrap()).unwrap();
            assert_eq!((c.n_rows(), c.n_cols(), c.nnz()), (a.n_rows(), b.n_cols(), truth.len()));
            assert_eq!(c.column_order(), ColumnOrder::Sorted);
            for ((i, j, value), right) in c.entries().zip(&truth) {
                assert_eq!((i, j), (right.0, right.1), "{}", kernel.name);
                assert!((f64::from(value) - right.2).abs() <= tolerance, "{} {i} {j}", kernel.name);
            }
            all.push(c);
        }
    }
    assert!(all.iter().all(|c| c.same_entries(&all[0])), "the number of threads matters");
}

#[test]
fn sparse_times_sparse() {
    for weighted in [false, true] {
        for a in matrices(weighted) {
            for (n_cols, entries) in [(1, 5), (3, 7), (200, 150)] {
                check(&a, &matrix(a.n_cols().max(1), n_cols, entries, !weighted));
            }
            check(&a, &Csr::empty(a.n_cols(), 4).unwrap());
        }
    }
}

#[test]
fn many_slices_and_a_hub() {
    check(&matrix(400, 300, 5000, true), &matrix(300, 2000, 9000, true));
}

#[test]
fn nan_stays() {
    let threads = Threads::one();
    let (a, b) = (matrix(6, 5, 20, true), matrix(5, 6, 20, true));
    let mut values = a.values().unwrap().to_vec();
    values[..5].fill(f32::NAN);
    let a = a.with_values(Some(values.into())).unwrap();
    let truth = reference::spgemm(&a, &b).unwrap();
    for kernel in KERNELS {
        let c = kernel.run(a.view(), b.view(), &threads).unwrap();
        let nan = c.entries().zip(&truth).filter(|((_, _, v), t)| v.is_nan() != t.2.is_nan());
        assert_eq!(nan.count(), 0);
        assert!(c.entries().any(|(_, _, v)| v.is_nan()));
    }
    assert!(spgemm(a.view(), a.view(), &threads).is_err());
}

fn check_features(x: &Csr, k: usize) {
    let (w, grad) = (cases::dense::<f32>(x.n_cols(), k, 1), cases::dense::<f32>(x.n_rows(), k, 2));
    let y = reference::sparse_matmul(x, &w.cast()).unwrap();
    let dw = reference::sparse_matmul_transposed(x, &grad.cast()).unwrap();
    let turned = x.transpose(&Threads::one());
    let terms = longest_row(x).max(longest_row(&turned)) + 4.0;
    let tolerance = terms * terms * f64::from(f32::EPSILON);
    for (_, found) in cases::on_every_machine(|_, threads| {
        let mut found = Dense::zeros(x.n_rows(), k);
        sparse_matmul(x.view(), &w, &mut found, threads).unwrap();
        found
    }) {
        assert_close(&found, &y, tolerance, "features");
    }
    let args = sparse_matmul::Args::new(x.view(), &grad).unwrap();
    let args = args.transposed(turned.view()).unwrap();
    for kernel in sparse_matmul::KERNELS {
        let results = cases::on_every_machine(|isa, threads| {
            let mut found = Dense::from_fn(x.n_cols(), k, |_, _| f64::NAN);
            kernel.run(isa, &args, &mut found, threads).unwrap();
            (bits(&found), found)
        });
        for (isa, (_, found)) in results {
            assert_close(&found, &dw, tolerance, &format!("{} {}", kernel.name, isa.name()));
        }
    }
}

#[test]
fn sparse_features_and_the_gradient_of_their_weights() {
    for weighted in [false, true] {
        for x in matrices(weighted) {
            for k in [0, 1, 3, 16, 17, 64, 65, 130] {
                check_features(&x, k);
            }
        }
        check_features(&matrix(300, 40, 9000, weighted), 20);
    }
}

#[test]
fn sizes_of_feature_products_are_checked() {
    let (x, threads) = (matrix(5, 4, 10, true), Threads::one());
    let (w, grad) = (cases::dense::<f32>(4, 3, 1), cases::dense::<f32>(5, 3, 2));
    assert!(sparse_matmul::Args::new(x.view(), &w).is_err());
    assert!(sparse_matmul(x.view(), &grad, &mut Dense::zeros(5, 3), &threads).is_err());
    let args = sparse_matmul::Args::new(x.view(), &grad).unwrap();
    assert!(args.transposed(x.view()).is_err());
    for kernel in sparse_matmul::KERNELS {
        let isa = lacis_kernels::Isa::best();
        let run = |n| kernel.run(isa, &args, &mut Dense::zeros(4, n), &threads);
        assert_eq!(run(3).is_ok(), kernel.takes(&args));
        assert!(run(2).is_err());
    }
}
