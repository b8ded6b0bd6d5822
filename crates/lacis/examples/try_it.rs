use lacis::nn::Config;
use lacis::params::Optimizer;
use lacis::train::*;
use lacis::{Threads, data::Job as DataJob};
fn main() -> lacis::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let threads = Threads::new(2)?;
    let data = lacis::open(&args[1], &DataJob::quiet(&threads))?;
    let profile =
        lacis::tune::file::load(std::path::Path::new(&args[4]), &lacis::machine::this_machine())
            .or_unmeasured(&lacis::machine::this_machine());
    let split = data.splits().first().cloned().unwrap_or_default();
    let job = Job { dataset: &data, split: &split, threads: &threads, profile: &profile };
    let mut config = Config::new(1, args[3].parse().unwrap(), 1);
    config.dropout = 0.5;
    let recipe = Recipe {
        model: args[2].clone(),
        config,
        optimizer: Optimizer::adam(0.01, 5e-4),
        epochs: 200,
        seed: 0,
        settings: Default::default(),
        eval_every: 10,
    };
    let t = std::time::Instant::now();
    let mut trainer = Trainer::new(&job, recipe)?;
    println!("plan {:.1} ms costed {}", trainer.plan_seconds() * 1e3, trainer.chosen().costed);
    println!("{}", trainer.chosen().plan);
    for l in &trainer.chosen().layers {
        println!("layer {} enumerated {} kept {}", l.layer, l.enumerated, l.kept().len());
        for (i, c) in l.all.iter().enumerate() {
            if c.pruned_by.is_none() {
                println!(
                    "  {} {:?} {}",
                    if i == l.chosen { "*" } else { " " },
                    c.predicted.map(|s| s * 1e3),
                    c.formula
                );
            }
        }
    }
    let labels = match data.labels().unwrap() {
        lacis::Labels::Classes { of, .. } => of.to_vec(),
        _ => vec![],
    };
    let mut total = 0.0;
    for _ in 0..200 {
        let e = trainer.step(&mut lacis::exec::Nobody)?;
        if e.epoch > 1 {
            total += e.seconds;
        }
        if e.epoch % 20 == 0 || e.epoch == 1 {
            let acc = trainer.logits(|m| {
                let mut right = 0;
                for &i in &split.test {
                    let row = m.row(i as usize);
                    let best = (0..row.len()).fold(0, |b, j| if row[j] > row[b] { j } else { b });
                    right += usize::from(best as i32 == labels[i as usize]);
                }
                right as f64 / split.test.len() as f64
            })?;
            println!(
                "epoch {} loss {:.4} test {:.4} {:.3} ms",
                e.epoch,
                e.loss,
                acc,
                e.seconds * 1e3
            );
        }
    }
    println!("mean epoch {:.3} ms, all {:.3} s", total / 199.0 * 1e3, t.elapsed().as_secs_f64());
    Ok(())
}
