//! Times attention over a graph's edges, forward and backward: `attention DATA [HEADSxWIDTH…]`
//! prints medians of several rounds, beside the time of an SpMM of the same width.

use std::time::Instant;

use lacis::data::Job;
use lacis::kernels::attention::{
    DotAttention, DotAttentionGrads, Gat, GatGrads, GatV2, GatV2Grads, Given,
};
use lacis::kernels::spmm::{Args, KERNELS};
use lacis::kernels::{Isa, Mat};
use lacis::reference::Reduce;
use lacis::{Csr, Dense, Threads};

const ROUNDS: usize = 7;
const SLOPE: f64 = 0.2;

/// What every attention takes and gives.
struct Case<'a> {
    a: &'a Csr,
    transpose: &'a Csr,
    heads: usize,
    x: [Dense; 4],
    vectors: [Dense; 2],
    threads: &'a Threads,
}

fn main() -> lacis::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, shapes @ ..] = &arguments[..] else {
        println!("usage: attention DATA [HEADSxWIDTH…]");
        return Ok(());
    };
    let threads = Threads::available();
    let set = lacis::open(data, &Job::quiet(&threads))?;
    let a = set.graph().adjacency();
    let transpose = a.transpose(&threads);
    let shapes = match shapes {
        [] => vec!["8x4", "8x16", "1x41"],
        _ => shapes.iter().map(String::as_str).collect(),
    };
    for shape in shapes {
        let sizes =
            shape.split_once('x').and_then(|(h, c)| Some((h.parse().ok()?, c.parse().ok()?)));
        let Some((heads, channels)) = sizes else {
            println!("{shape} is not HEADSxWIDTH");
            continue;
        };
        let (n, k) = (a.n_rows(), heads * channels);
        let some = |seed: usize, n: usize, k: usize| {
            Dense::from_fn(n, k, |i, j| {
                ((i * 7919 + j * 104_729 + seed) % 1009) as f64 * 1e-3 - 0.5
            })
        };
        let x = [1, 2, 3, 4].map(|seed| some(seed, n, k));
        let vectors = [5, 6].map(|seed| some(seed, heads, channels));
        Case { a, transpose: &transpose, heads, x, vectors, threads: &threads }.report(shape)?;
    }
    Ok(())
}

impl Case<'_> {
    fn report(&self, shape: &str) -> lacis::Result<()> {
        let mut y = Dense::zeros(self.a.n_rows(), self.x[0].n_cols());
        let args = Args::new(self.a.view(), &self.x[0], Reduce::Sum)?;
        let spmm = median(|| KERNELS[0].run(Isa::best(), &args, &mut y, self.threads))?;
        println!("{shape:<6} spmm   {spmm:8.2} ms");
        let all: [(&str, [f64; 2]); 3] =
            [("gat", self.gat()?), ("gatv2", self.gatv2()?), ("dot", self.dot()?)];
        for (name, [forward, backward]) in all {
            let both = forward + backward;
            println!("{shape:<6} {name:<6} {both:8.2} ms = {forward:7.2} + {backward:7.2}");
        }
        Ok(())
    }

    fn outputs(&self) -> (Dense, Dense) {
        let n = self.a.n_rows();
        (Dense::zeros(n, self.x[0].n_cols()), Dense::zeros(n, self.heads))
    }

    fn like(&self, matrix: &Dense) -> Dense {
        Dense::zeros(matrix.n_rows(), matrix.n_cols())
    }

    fn given<'g>(&'g self, y: &'g Dense, lse: &'g Dense) -> Given<'g, f32> {
        let grad = (&self.x[3]).into();
        Given { transpose: self.transpose.view(), y: y.into(), lse: lse.into(), grad }
    }

    fn gat(&self) -> lacis::Result<[f64; 2]> {
        let [t, u] = [0, 1].map(|v| Mat::from(&self.vectors[v]));
        let gat = Gat::new(self.a.view(), &self.x[0], [t, u], SLOPE)?;
        let (isa, (mut y, mut lse)) = (Isa::best(), self.outputs());
        let forward = median(|| gat.forward(isa, (&mut y, &mut lse), self.threads))?;
        let (mut dx, given) = (self.like(&self.x[0]), self.given(&y, &lse));
        let [mut dt, mut du] = [0, 1].map(|v| self.like(&self.vectors[v]));
        let backward = median(|| {
            let grads = GatGrads {
                source: (&mut dx).into(),
                target: None,
                target_vectors: (&mut dt).into(),
                source_vectors: (&mut du).into(),
                edge_vectors: None,
                features: None,
                bias: None,
            };
            gat.backward(isa, &given, grads, self.threads)
        })?;
        Ok([forward, backward])
    }

    fn gatv2(&self) -> lacis::Result<[f64; 2]> {
        let ends = [0, 1].map(|end| Mat::from(&self.x[end]));
        let gat = GatV2::new(self.a.view(), ends, &self.vectors[0], SLOPE)?;
        let (isa, (mut y, mut lse)) = (Isa::best(), self.outputs());
        let forward = median(|| gat.forward(isa, (&mut y, &mut lse), self.threads))?;
        let [mut dx, mut dz] = [0, 1].map(|end| self.like(&self.x[end]));
        let (mut dv, given) = (self.like(&self.vectors[0]), self.given(&y, &lse));
        let backward = median(|| {
            let grads = GatV2Grads {
                target: (&mut dx).into(),
                source: (&mut dz).into(),
                vectors: (&mut dv).into(),
                features: None,
                bias: None,
            };
            gat.backward(isa, &given, grads, self.threads)
        })?;
        Ok([forward, backward])
    }

    fn dot(&self) -> lacis::Result<[f64; 2]> {
        let ends = [0, 1, 2].map(|end| Mat::from(&self.x[end]));
        let dot = DotAttention::new(self.a.view(), ends, self.heads, 0.5)?;
        let (isa, (mut y, mut lse)) = (Isa::best(), self.outputs());
        let forward = median(|| dot.forward(isa, (&mut y, &mut lse), self.threads))?;
        let [mut dq, mut dk, mut dv] = [0, 1, 2].map(|end| self.like(&self.x[end]));
        let given = self.given(&y, &lse);
        let backward = median(|| {
            let grads = DotAttentionGrads {
                queries: (&mut dq).into(),
                keys: (&mut dk).into(),
                values: (&mut dv).into(),
                features: None,
                bias: None,
            };
            dot.backward(isa, &given, grads, self.threads)
        })?;
        Ok([forward, backward])
    }
}

/// Milliseconds, the median of several rounds after one that is not counted.
fn median(mut job: impl FnMut() -> lacis::Result<()>) -> lacis::Result<f64> {
    job()?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        job()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[ROUNDS / 2])
}
