//! timing
use lacis_core::*;
use lacis_kernels::attention::*;
use lacis_kernels::{Isa, Mat};
use std::time::Instant;

fn read(path: &str) -> Vec<u32> {
    std::fs::read(path)
        .unwrap()
        .chunks_exact(4)
        .map(|c| u32::from_le_bytes(c.try_into().unwrap()))
        .collect()
}
fn dense(n: usize, k: usize, seed: u64) -> Dense<f32> {
    let rng = Rng::new(seed, "x");
    Dense::from_fn(n, k, |i, j| {
        f64::from(rng.block_at(i as u64, j as u32)[0]) / f64::from(u32::MAX) * 2.0 - 1.0
    })
}
fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let reps: usize = args[1].parse().unwrap();
    let only = args.get(2).cloned().unwrap_or_default();
    let isa = args.get(3).map_or(Isa::best(), |n| Isa::named(n).unwrap());
    let threads = Threads::new(args.get(4).map_or(2, |n| n.parse().unwrap())).unwrap();
    let drop: f64 = args.get(5).map_or(0.0, |n| n.parse().unwrap());
    let ptr = read("/tmp/att/arxiv.ptr");
    let cols = read("/tmp/att/arxiv.cols");
    let n = ptr.len() - 1;
    let a = Csr::new(
        CsrParts {
            n_cols: n,
            row_ptr: RowPtr::Narrow(ptr.into()),
            cols: cols.into(),
            values: None,
            order: None,
        },
        &threads,
    )
    .unwrap();
    let at =
        if drop > 0.0 { a.transpose_with_order(&threads).unwrap() } else { a.transpose(&threads) };
    for (h, c) in [(8, 4), (8, 16), (1, 41)] {
        let k = h * c;
        let (x, g) = (dense(n, k, 1), dense(n, k, 2));
        let (t, u) = (dense(h, c, 3), dense(h, c, 4));
        let mut y: Dense<f32> = Dense::zeros(n, k);
        let mut lse: Dense<f32> = Dense::zeros(n, h);
        let (mut dz, mut dt, mut du): (Dense<f32>, Dense<f32>, Dense<f32>) =
            (Dense::zeros(n, k), Dense::zeros(h, c), Dense::zeros(h, c));
        if only.is_empty() || only.contains("gat,") {
            let mut gat = Gat::new(a.view(), &x, [Mat::from(&t), Mat::from(&u)], 0.2).unwrap();
            if drop > 0.0 {
                gat = gat.with_dropout(Dropout::new(drop, 1).unwrap());
            }
            let (mut f, mut b) = (vec![], vec![]);
            for _ in 0..reps {
                let s = Instant::now();
                gat.forward(isa, (&mut y, &mut lse), &threads).unwrap();
                f.push(s.elapsed().as_secs_f64() * 1e3);
                let s = Instant::now();
                let grads = GatGrads {
                    source: (&mut dz).into(),
                    target: None,
                    target_vectors: (&mut dt).into(),
                    source_vectors: (&mut du).into(),
                    edge_vectors: None,
                    features: None,
                    bias: None,
                };
                gat.backward(
                    isa,
                    &Given {
                        transpose: at.view(),
                        y: (&y).into(),
                        lse: (&lse).into(),
                        grad: (&g).into(),
                    },
                    grads,
                    &threads,
                )
                .unwrap();
                b.push(s.elapsed().as_secs_f64() * 1e3);
            }
            println!("gat {h}x{c} fwd {:.1} bwd {:.1} ms", median(f), median(b));
        }
        let (mut dx, mut dk): (Dense<f32>, Dense<f32>) = (Dense::zeros(n, k), Dense::zeros(n, k));
        let (x2, x3) = (dense(n, k, 5), dense(n, k, 6));
        if only.is_empty() || only.contains("gatv2,") {
            let mut gat = GatV2::new(a.view(), [(&x2).into(), (&x).into()], &t, 0.2).unwrap();
            if drop > 0.0 {
                gat = gat.with_dropout(Dropout::new(drop, 1).unwrap());
            }
            let (mut f, mut b) = (vec![], vec![]);
            for _ in 0..reps {
                let s = Instant::now();
                gat.forward(isa, (&mut y, &mut lse), &threads).unwrap();
                f.push(s.elapsed().as_secs_f64() * 1e3);
                let s = Instant::now();
                let grads = GatV2Grads {
                    source: (&mut dz).into(),
                    target: (&mut dx).into(),
                    vectors: (&mut dt).into(),
                    features: None,
                    bias: None,
                };
                gat.backward(
                    isa,
                    &Given {
                        transpose: at.view(),
                        y: (&y).into(),
                        lse: (&lse).into(),
                        grad: (&g).into(),
                    },
                    grads,
                    &threads,
                )
                .unwrap();
                b.push(s.elapsed().as_secs_f64() * 1e3);
            }
            println!("gatv2 {h}x{c} fwd {:.1} bwd {:.1} ms", median(f), median(b));
        }
        if only.is_empty() || only.contains("dot,") {
            let mut gat =
                DotAttention::new(a.view(), [(&x2).into(), (&x).into(), (&x3).into()], h, 0.5)
                    .unwrap();
            if drop > 0.0 {
                gat = gat.with_dropout(Dropout::new(drop, 1).unwrap());
            }
            let (mut f, mut b) = (vec![], vec![]);
            for _ in 0..reps {
                let s = Instant::now();
                gat.forward(isa, (&mut y, &mut lse), &threads).unwrap();
                f.push(s.elapsed().as_secs_f64() * 1e3);
                let s = Instant::now();
                let grads = DotAttentionGrads {
                    queries: (&mut dz).into(),
                    keys: (&mut dx).into(),
                    values: (&mut dk).into(),
                    features: None,
                    bias: None,
                };
                gat.backward(
                    isa,
                    &Given {
                        transpose: at.view(),
                        y: (&y).into(),
                        lse: (&lse).into(),
                        grad: (&g).into(),
                    },
                    grads,
                    &threads,
                )
                .unwrap();
                b.push(s.elapsed().as_secs_f64() * 1e3);
            }
            println!("dot {h}x{c} fwd {:.1} bwd {:.1} ms", median(f), median(b));
        }
        let args = lacis_kernels::spmm::Args::new(a.view(), &x, reference::Reduce::Sum)
            .unwrap();
        let mut s = vec![];
        for _ in 0..reps {
            let t = Instant::now();
            lacis_kernels::spmm::KERNELS[3].run(isa, &args, &mut y, &threads).unwrap();
            s.push(t.elapsed().as_secs_f64() * 1e3);
        }
        println!("spmm k={k} {:.1} ms", median(s));
    }
}
