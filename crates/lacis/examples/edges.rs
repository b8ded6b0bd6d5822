//! Times the kernels that look at both ends of an edge: `edges DATA K…` prints the median of several
//! rounds, the rate at which rows are gathered, and the time over that of reading the same rows.

use std::time::Instant;

use lacis::data::Job;
use lacis::kernels::{EdgeOrder, Isa, MatMut, edge, edge_softmax, roof, sddmm};
use lacis::reference::EdgeOp;
use lacis::{Dense, Threads};

const ROUNDS: usize = 7;
const HEADS: usize = 8;

/// The median time of each, in rounds of all.
fn medians(
    runs: &mut [(&str, Box<dyn FnMut() -> lacis::Result<()> + '_>)],
) -> lacis::Result<Vec<f64>> {
    let mut times = vec![Vec::new(); runs.len()];
    for _ in 0..ROUNDS {
        for ((_, run), times) in runs.iter_mut().zip(&mut times) {
            let begun = Instant::now();
            run()?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    Ok(times.iter().map(|times| times[ROUNDS / 2]).collect())
}

fn main() -> lacis::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, widths @ ..] = &arguments[..] else {
        println!("usage: edges DATA K…");
        return Ok(());
    };
    let threads = Threads::available();
    let isa = Isa::best();
    let set = lacis::open(data, &Job::quiet(&threads))?;
    let a = set.graph().adjacency();
    let (view, nnz) = (a.view(), a.nnz());
    // The same graph as a caller has it who lists edges by their source.
    let turned = a.transpose_with_order(&threads)?;
    println!("{} threads, {}, {nnz} entries", threads.count(), isa.name());
    for k in widths.iter().filter_map(|k| k.parse().ok()) {
        let x = Dense::<f32>::from_fn(a.n_cols(), k, |i, j| ((i * 7 + j) % 31) as f64 * 0.01);
        let (mut dots, mut ordered) = (Dense::zeros(nnz, 1), Dense::zeros(nnz, 1));
        let mut y = [(); 2].map(|()| Dense::zeros(a.n_rows(), k));
        let [y0, y1] = &mut y;
        let mut nothing = [];
        let args = sddmm::Args::new(view, &x, &x, EdgeOp::Dot)?;
        let caller = sddmm::Args::new(turned.view(), &x, &x, EdgeOp::Dot)?;
        let caller = caller.ordered(EdgeOrder::Caller);
        let fused = edge::Args::new(view, &x, &x, &x)?;
        let mut replay_reads = || {
            let none = MatMut::new(&mut nothing, a.n_rows(), 0, 0)?;
            std::hint::black_box(roof::replay(isa, view, (&x).into(), none, &threads)?);
            Ok(())
        };
        let mut runs: Vec<(&str, Box<dyn FnMut() -> lacis::Result<()> + '_>)> = vec![
            ("roof, reads only", Box::new(&mut replay_reads)),
            (
                "roof, y written",
                Box::new(|| {
                    roof::replay(isa, view, (&x).into(), (&mut *y0).into(), &threads).map(|_| ())
                }),
            ),
            ("sddmm dot", Box::new(|| sddmm::run(isa, &args, &mut dots, &threads))),
            (
                "sddmm dot, caller's order",
                Box::new(|| sddmm::run(isa, &caller, &mut ordered, &threads)),
            ),
            (
                "sigmoid of dot, fused",
                Box::new(|| edge::forward(isa, &fused, edge::SIGMOID_OF_DOT, &mut *y1, &threads)),
            ),
        ];
        let times = medians(&mut runs)?;
        for ((name, _), ms) in runs.iter().zip(&times) {
            let rate = (nnz * (k * 4 + 4)) as f64 / ms / 1e6;
            println!("k={k:<4} {name:<28} {ms:9.2} ms {rate:7.1} GB/s {:6.2}", times[0] / ms);
        }
    }
    let scores = Dense::<f32>::from_fn(nnz, HEADS, |e, h| ((e * 13 + h) % 101) as f64 * 0.05);
    let [mut p, mut q, mut ds] = [(); 3].map(|()| Dense::zeros(nnz, HEADS));
    let args = edge_softmax::Args::new(view, &scores)?;
    edge_softmax::run(isa, &args, &mut p, &threads)?;
    let back = edge_softmax::Args::backward(view, &p, &scores)?;
    let caller = edge_softmax::Args::new(turned.view(), &scores)?.ordered(EdgeOrder::Caller);
    let mut copied = vec![0f32; nnz * HEADS];
    let mut runs: Vec<(&str, Box<dyn FnMut() -> lacis::Result<()> + '_>)> = vec![
        (
            "copy of the scores",
            Box::new(|| {
                let parts = copied.chunks_mut(1 << 18).zip(scores.data().chunks(1 << 18)).collect();
                threads
                    .for_each(parts, |(to, from): (&mut [f32], &[f32])| to.copy_from_slice(from));
                Ok(())
            }),
        ),
        ("edge softmax", Box::new(|| edge_softmax::run(isa, &args, &mut q, &threads))),
        ("edge softmax backward", Box::new(|| edge_softmax::run(isa, &back, &mut ds, &threads))),
    ];
    let times = medians(&mut runs)?;
    for ((name, _), ms) in runs.iter().zip(&times) {
        println!("h={HEADS:<4} {name:<28} {ms:9.2} ms {:6.2}", times[0] / ms);
    }
    drop(runs);
    let begun = Instant::now();
    edge_softmax::run(isa, &caller, &mut q, &threads)?;
    println!(
        "h={HEADS:<4} edge softmax, caller's order {:9.2} ms",
        begun.elapsed().as_secs_f64() * 1e3
    );
    Ok(())
}
