//! Memory, counted byte by byte: no epoch after the first asks for more, and the prediction holds.
//! Kernels that pack factors while they run are named in [`KERNELS`].
//!
//! A binary of its own: its allocator counts for all threads, so its one test runs alone.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lacis::data::Job as Reading;
use lacis::exec::{Nobody, Observe};
use lacis::kernels::Profile;
use lacis::machine::this_machine;
use lacis::nn::sage::Aggregate;
use lacis::nn::{Config, Jump, MODELS};
use lacis::plan::op::NormKind;
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Dataset, Split, Threads};

/// What an epoch may ask for at once: lists of items, not rows.
const SMALL: usize = 4 << 10;

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGE: AtomicUsize = AtomicUsize::new(0);

fn taken(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(live, Relaxed);
    if bytes > SMALL {
        LARGE.fetch_add(1, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `at` came from the system's allocator with this layout, as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Every kind of network, and what changes which steps it has.
fn recipes() -> Vec<(String, Recipe)> {
    let base = |model: &str| {
        let mut config = Config::new(1, 64, 1);
        if matches!(model, "gat" | "gatv2") {
            config.heads = 4;
        }
        config.dropout = 0.4;
        Recipe { epochs: 20, seed: 3, ..Recipe::new(model, config) }
    };
    let mut all: Vec<(String, Recipe)> =
        MODELS.iter().map(|model| (model.name.to_owned(), base(model.name))).collect();
    let mut with = |name: &str, model: &str, change: &dyn Fn(&mut Recipe)| {
        let mut recipe = base(model);
        change(&mut recipe);
        all.push((name.to_owned(), recipe));
    };
    with("batch norm", "gcn", &|recipe| recipe.config.norm = Some(NormKind::Batch));
    with("layer norm", "gin", &|recipe| recipe.config.norm = Some(NormKind::Layer));
    with("maxima", "sage", &|recipe| recipe.config.aggregate = Aggregate::Max);
    with("jumping", "gat", &|recipe| recipe.config.jumping = Some(Jump::Concat));
    with("dropped edges", "appnp", &|recipe| recipe.config.edge_dropout = 0.3);
    with("learned epsilon", "gin", &|recipe| recipe.config.learn_eps = true);
    with("no savings", "gcn", &|recipe| recipe.settings.without = vec!["all".to_owned()]);
    all
}

/// Steps whose kernels ask for memory of their own, and give it back: packed factors.
const KERNELS: &[&str] = &["Gemm"];

/// Large allocations of each step.
struct Watch {
    before: usize,
    steps: Vec<usize>,
}

impl Watch {
    fn new(steps: usize) -> Self {
        Watch { before: LARGE.load(Relaxed), steps: vec![0; steps] }
    }
}

impl Observe for Watch {
    fn step(&mut self, index: usize, _: f64) {
        let now = LARGE.load(Relaxed);
        self.steps[index] += now - self.before;
        self.before = now;
    }
}

/// What a training did that it should not have.
struct Found {
    /// Steps that asked for much after the first epoch.
    large: Vec<String>,
    /// Bytes that later epochs keep.
    kept: usize,
    /// What was predicted over what was counted.
    ratio: f64,
}

fn counted(job: &Job<'_>, recipe: Recipe, before: usize) -> Found {
    let mut trainer = Trainer::new(job, recipe).unwrap();
    PEAK.store(LIVE.load(Relaxed), Relaxed);
    trainer.step(&mut Nobody).unwrap();
    trainer.logits(|_| ()).unwrap();
    trainer.step(&mut Nobody).unwrap();
    let mut watch = Watch::new(trainer.chosen().plan.steps.len());
    let live = LIVE.load(Relaxed);
    for _ in 0..3 {
        trainer.step(&mut watch).unwrap();
    }
    let kept = LIVE.load(Relaxed).saturating_sub(live);
    // The best weights are kept apart, as a training that is watched does.
    let best = trainer.params().clone();
    trainer.logits(|_| ()).unwrap();
    drop(best);
    let peak = (PEAK.load(Relaxed) - before) as f64;
    let steps = trainer.chosen().plan.steps.iter().zip(&watch.steps);
    let names = steps.filter(|(_, large)| **large > 0).map(|(step, _)| {
        let text = format!("{:?}", step.operator);
        text.split([' ', '(']).next().unwrap_or_default().to_owned()
    });
    let large = names.filter(|name| !KERNELS.contains(&name.as_str())).collect();
    Found { large, kept, ratio: trainer.needs().counted() as f64 / peak }
}

fn split_of(set: &Dataset, every: usize) -> Split {
    let n = set.graph().n_nodes() as u32;
    Split {
        name: "some".into(),
        train: (0..n).step_by(every).collect(),
        val: vec![1],
        test: vec![2],
    }
}

#[test]
fn epochs_allocate_nothing_large_and_peaks_are_predicted() {
    let threads = Threads::new(2).unwrap();
    let profile = Profile::unmeasured(this_machine());
    let before = LIVE.load(Relaxed);
    // Small enough that no buffer asks for huge pages, which this allocator does not see.
    let data = "sbm:n=4k,e=40k,classes=6,features=48,seed=5";
    let set = lacis::open(data, &Reading::quiet(&threads)).unwrap();
    let mut wrong = Vec::new();
    for every in [1, 40] {
        let split = split_of(&set, every);
        let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
        for (name, recipe) in recipes() {
            let Found { large, kept, ratio } = counted(&job, recipe, before);
            if !large.is_empty() || kept > SMALL || !(0.9..=1.1).contains(&ratio) {
                wrong.push(format!("{name}, every {every}: {large:?}, {kept} kept, {ratio:.3}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
