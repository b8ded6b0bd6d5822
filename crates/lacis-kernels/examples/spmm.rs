//! Times every SpMM kernel on a random matrix: `spmm N NNZ K…`, milliseconds and the rate at which
//! rows are gathered, beside the rate of reading the same rows without computing.

use std::time::Instant;

use lacis_core::reference::Reduce;
use lacis_core::{Coo, Dense, Extent, Repeats, Rng, Threads};
use lacis_kernels::Isa;
use lacis_kernels::spmm::{Args, KERNELS};

fn main() -> lacis_core::Result<()> {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let [n, nnz, widths @ ..] = &numbers[..] else {
        println!("usage: spmm N NNZ K…");
        return Ok(());
    };
    let threads = Threads::available();
    let rng = Rng::new(1, "bench");
    let draw = |lane: usize| (0..*nnz as u64).map(move |e| rng.block(e)[lane] % *n as u32);
    let (rows, cols): (Vec<u32>, Vec<u32>) = (draw(0).collect(), draw(1).collect());
    let extent = Extent { n_rows: Some(*n), n_cols: Some(*n) };
    let a = Coo::from_slices(&rows, &cols, None, &threads)?.into_csr(
        extent,
        Repeats::Merge,
        &threads,
    )?;
    for &k in widths {
        let x = Dense::from_fn(*n, k, |i, j| (i + j) as f64 * 1e-6);
        let mut y = Dense::zeros(*n, k);
        let args = Args::new(a.view(), &x, Reduce::Sum)?;
        for kernel in KERNELS {
            for isa in Isa::available() {
                let mut best = f64::INFINITY;
                for _ in 0..7 {
                    let begun = Instant::now();
                    kernel.run(isa, &args, &mut y, &threads)?;
                    best = best.min(begun.elapsed().as_secs_f64());
                }
                let gigabytes = (a.nnz() * (k * 4 + 4) + n * k * 4) as f64 / 1e9;
                let (ms, rate) = (best * 1e3, gigabytes / best);
                println!("k={k:<4} {} {:<9} {ms:8.2} ms {rate:7.1} GB/s", kernel.name, isa.name());
            }
        }
    }
    Ok(())
}
