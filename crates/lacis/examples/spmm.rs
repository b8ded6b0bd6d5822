//! Times every SpMM kernel: `spmm DATA K…` prints the best of several rounds, and the rate at which
//! rows of `x` are gathered.

use std::time::Instant;

use lacis::data::Job;
use lacis::kernels::Isa;
use lacis::kernels::spmm::{Args, KERNELS};
use lacis::reference::Reduce;
use lacis::{Dense, Threads};

const ROUNDS: usize = 7;

fn main() -> lacis::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, widths @ ..] = &arguments[..] else {
        println!("usage: spmm DATA K…");
        return Ok(());
    };
    let threads = Threads::available();
    let set = lacis::open(data, &Job::quiet(&threads))?;
    let a = set.graph().adjacency();
    for k in widths.iter().filter_map(|k| k.parse().ok()) {
        let x: Dense = Dense::from_fn(a.n_cols(), k, |i, j| (i + j) as f64 * 1e-6);
        let mut y = Dense::zeros(a.n_rows(), k);
        let args = Args::new(a.view(), &x, Reduce::Sum)?;
        for kernel in KERNELS {
            for isa in [Isa::best()] {
                let mut best = f64::INFINITY;
                for _ in 0..ROUNDS {
                    let begun = Instant::now();
                    kernel.run(isa, &args, &mut y, &threads)?;
                    best = best.min(begun.elapsed().as_secs_f64());
                }
                let gigabytes = (a.nnz() * (k * 4 + 4) + a.n_rows() * k * 4) as f64 / 1e9;
                let (ms, rate) = (best * 1e3, gigabytes / best);
                println!(
                    "k={k:<4} {:<26} {:<9} {ms:8.2} ms {rate:7.1} GB/s",
                    kernel.name,
                    isa.name()
                );
            }
        }
    }
    Ok(())
}
