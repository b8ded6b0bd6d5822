//! Neighbour-sampled batches per second, features included:
//! `cargo run --release --example sampling DATA [FANOUTS] [BATCH] [WORKERS]`.

use std::time::Instant;

use lacis::data::Job;
use lacis::sample::{Fanout, NeighborBatches, NeighborConfig, Preparation};
use lacis::{Dense, Threads};

/// Feature columns, as ogbn-products has them.
const COLUMNS: usize = 100;
/// Batches that are timed.
const BATCHES: usize = 30;

fn main() -> lacis::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let data = arguments.next().unwrap_or_else(|| "rmat:n=100000,e=1000000,seed=1".into());
    let fanouts = Fanout::parse_list(&arguments.next().unwrap_or_else(|| "15,10,5".into()))?;
    let mut number = |default| arguments.next().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (batch_size, workers) = (number(1024), number(0));

    let threads = Threads::available();
    let set = lacis::open(&data, &Job::quiet(&threads))?;
    let n = set.graph().n_nodes();
    let x = Dense::<f32>::from_fn(n, COLUMNS, |i, j| (i * 31 + j) as f64);
    let seeds: Vec<u32> = (0..n as u32).collect();
    for features in [None, Some(&x)] {
        let preparation = Preparation { workers, depth: 2 };
        let config =
            NeighborConfig { preparation, ..NeighborConfig::new(fanouts.clone(), batch_size, 1) };
        let batches = NeighborBatches::new(set.graph(), features, &seeds, config)?;
        let mut epoch = batches.epoch(0)?;
        // The first batches find no memory to use again.
        for _ in 0..3 * workers.max(1) {
            epoch.next()?;
        }
        let (start, mut nodes, mut edges, mut count) = (Instant::now(), 0, 0, 0);
        while let (true, Some(batch)) = (count < BATCHES, epoch.next()?) {
            nodes += batch.nodes().len();
            edges += batch.blocks().last().map_or(0, lacis::Csr::nnz);
            count += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{data} {}: {:.1} batches/s, {} nodes and {} edges each",
            if features.is_some() { "with features" } else { "without features" },
            count as f64 / seconds,
            nodes / count.max(1),
            edges / count.max(1),
        );
    }
    Ok(())
}
