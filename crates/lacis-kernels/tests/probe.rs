//! [`lacis_kernels::probe`]: the plain loop is right, the others touch what they should.

use lacis_core::reference::{Reduce, spmm};
use lacis_core::{Dense, Threads};
use lacis_kernels::{Isa, probe};

use crate::cases;

#[test]
fn the_plain_loop_is_right() {
    for a in [cases::matrices(false), cases::matrices(true)].concat() {
        for k in [1, 5, 16, 33] {
            let x: Dense = cases::dense(a.n_cols(), k, 3);
            let truth = spmm(&a, &x.cast(), Reduce::Sum).unwrap();
            let tolerance = cases::longest_row(&a).powi(2) * 4.0 * f64::from(f32::EPSILON);
            let found = cases::on_every_machine(|isa, threads| {
                let mut y = Dense::<f32>::from_fn(a.n_rows(), k, |_, _| f64::NAN);
                probe::plain(isa, a.view(), (&x).into(), (&mut y).into(), threads).unwrap();
                y
            });
            for (isa, y) in found {
                cases::assert_close(&y, &truth, tolerance, isa.name());
            }
        }
    }
}

#[test]
fn everything_is_written() {
    let threads = Threads::new(2).unwrap();
    let (mut from, mut to) = (vec![0.0; 200_000], vec![0.0; 150_000]);
    probe::write(&mut from, &threads);
    probe::copy(&from, &mut to, &threads);
    probe::read(Isa::best(), &to, &threads);
    assert!(from.iter().chain(&to).all(|v| *v == 1.0));
}
