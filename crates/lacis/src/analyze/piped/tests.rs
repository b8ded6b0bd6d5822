//! Pipelines carried out block by block by workers with memories of their own.

use std::collections::HashSet;

use lacis_kernels::Profile;

use super::*;
use crate::analyze::Case;
use crate::costs::Measured;
use crate::nn::Config;
use crate::train::{Job, Recipe, Trainer};

fn with_view<R>(model: &str, layers: usize, use_it: impl FnOnce(&View<'_>) -> R) -> R {
    let threads = lacis_core::Threads::one();
    let spec = "sbm:n=90,e=400,classes=3,features=10,seed=1";
    let data = crate::open(spec, &lacis_data::Job::quiet(&threads)).expect("a generator");
    let split = lacis_data::splits::all(data.labels().expect("labels")).expect("a split");
    let profile = Profile::unmeasured(crate::machine::this_machine());
    let job = Job { dataset: &data, split: &split, threads: &threads, profile: &profile };
    let mut config = Config { layers, ..Config::new(1, 8, 1) };
    if model == "gat" {
        config.heads = 2;
    }
    let trainer = Trainer::new(&job, Recipe::new(model, config)).expect("a trainer");
    let case = Case {
        dataset: &data,
        config: &trainer.model().config,
        model,
        plan: &trainer.chosen().plan,
        sizes: &trainer.sizes(),
        costs: &Measured(&profile),
        threads: &threads,
        train: &split.train,
    };
    use_it(&View::new(&case).expect("a view"))
}

/// What a worker has: a block of a result, or the newest of a weight.
type Memory = HashSet<(ValueId, usize)>;

/// Bytes and messages of the second epoch, in which weights are those of the first.
fn carried_out(view: &View<'_>, who: &[usize], blocks: usize) -> [usize; 2] {
    let plan = view.case.plan;
    let workers = who.iter().max().map_or(1, |most| most + 1);
    let mut memories = vec![Memory::new(); workers];
    // Made in this epoch; weights were there before the first.
    let mut made: HashSet<ValueId> = HashSet::new();
    let mut sent = [0, 0];
    for epoch in 0..2 {
        made.retain(|value| matches!(plan.values[*value].place, Place::Param(_)));
        for ((step, _), &worker) in view.epoch().zip(who) {
            for value in step.inputs.iter().map(|&input| plan.base(input)) {
                let pieces = pieces(view, value, blocks);
                for (block, bytes) in pieces.into_iter().enumerate() {
                    if made.contains(&value) && memories[worker].insert((value, block)) {
                        sent = if epoch == 1 { [sent[0] + bytes, sent[1] + 1] } else { sent };
                    }
                }
            }
            let mut written: Vec<ValueId> = step.outputs.iter().map(|&v| plan.base(v)).collect();
            if let Operator::Update(param) = step.operator {
                let is_it = |value: &ValueId| plan.values[*value].place == Place::Param(param);
                written.extend((0..plan.values.len()).filter(is_it));
            }
            for value in written {
                made.insert(value);
                memories.iter_mut().for_each(|memory| memory.retain(|(old, _)| *old != value));
                memories[worker].extend((0..blocks).map(|block| (value, block)));
            }
        }
    }
    sent
}

/// Bytes of each block of a value, or of all of it where it has no rows for nodes.
fn pieces(view: &View<'_>, value: ValueId, blocks: usize) -> Vec<usize> {
    let plan = view.case.plan;
    let numbers = plan.len_of(value, view.case.sizes);
    let bytes = plan.number_bytes(value);
    match plan.values[value].shape[0] {
        Dim::Width(_) => vec![numbers * bytes],
        _ => {
            let rows = view.graph().n_nodes();
            let row = numbers / rows;
            let of = |b: usize| rows * (b + 1) / blocks - rows * b / blocks;
            (0..blocks).map(|block| of(block) * row * bytes).collect()
        }
    }
}

#[test]
fn pipelines_send_what_workers_lack() {
    for (model, layers) in [("gcn", 3), ("sage", 2), ("gat", 2), ("gatedgcn", 2), ("mlp", 3)] {
        with_view(model, layers, |view| {
            for (grain, workers) in
                [Grain::Micro, Grain::Macro].into_iter().flat_map(|g| [1, 2, 3, 8].map(|p| (g, p)))
            {
                let wires = Wires { workers, blocks: 6, ..Wires::default() };
                let (_, who) = grain.stages(view, &wires);
                let verdict = piped(view, &wires, grain).expect("simulated").expect("stages");
                let [bytes, messages] = carried_out(view, &who, 6);
                let what = format!("{model}, {}, {workers}", grain.name());
                assert_eq!(verdict.volume_bytes, bytes as f64, "{what}");
                assert_eq!(verdict.messages, messages as f64, "{what}");
                assert_eq!(verdict.messages > 0.0, verdict.workers > 1, "{what}");
            }
        });
    }
}

#[test]
fn long_pipelines_have_fewer_blocks() {
    with_view("gcn", 40, |view| {
        let wires = Wires { workers: 4, blocks: 64, staleness: 4, ..Wires::default() };
        let (stages, _) = Grain::Macro.stages(view, &wires);
        let found = blocks(view, &wires, (stages.len(), Grain::Macro));
        assert!(found > 0 && found < 64, "{found}");
        let verdict = piped(view, &wires, Grain::Macro).expect("simulated").expect("stages");
        assert!(verdict.note.ends_with(&format!("with {found} of 64 blocks")), "{}", verdict.note);
        assert!(left_out(view, &wires).is_empty());
        assert_eq!(blocks(view, &wires, (MOST + 1, Grain::Micro)), 0);
    });
}
