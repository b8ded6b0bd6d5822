//! Ways to train, by what they do in an epoch: full batch, and each kind of sampling.
//!
//! Formulas are those of Besta and Hoefler's table of training schemes; numbers follow from the
//! plan's own steps on the sizes that a scheme meets.

use lacis_core::Result;
use lacis_plan::Sizes;
use lacis_plan::analysis::Subject;
use lacis_plan::plan::Phase;

use super::View;

/// Neighbours that are drawn for each node.
const FAN_OUT: usize = 10;
/// Nodes of a batch.
const BATCH: usize = 1024;

/// One way to train.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheme {
    /// Its name.
    pub name: &'static str,
    /// The order of its work for an epoch of `L` layers.
    pub work_order: &'static str,
    /// The order of its depth.
    pub depth_order: &'static str,
    /// The order of its memory.
    pub memory_order: &'static str,
    /// Operations of an epoch.
    pub work: f64,
    /// Bytes of what grows with nodes.
    pub memory_bytes: f64,
}

/// A row of the published table: name, work, depth, memory, and whose numbers it has.
pub type Row = (&'static str, &'static str, &'static str, &'static str, Sampled);

/// Which nodes a batch meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// All of them.
    No,
    /// All of them; what was computed forward is computed again, from the end, where it is needed
    /// back.
    Reversible,
    /// `c` neighbours of each node of a layer.
    Neighbours,
    /// The same, with old values of all neighbours.
    History,
    /// `c` nodes in each layer for each node of the batch.
    Layers,
    /// A part of the graph.
    Parts,
}

/// Every scheme there is.
pub static SCHEMES: &[Row] = &[
    ("full batch", "O(L·m·k + L·n·k²)", "O(L·log d + L·log k)", "O(L·n·k + L·k² + m)", Sampled::No),
    (
        "full batch, one weight for all layers",
        "O(L·m·k + L·n·k²)",
        "O(L·log d + L·log k)",
        "O(L·n·k + k² + m)",
        Sampled::No,
    ),
    (
        "full batch, reversible layers",
        "O(L·m·k + L·n·k²)",
        "O(L·log d + L·log k)",
        "O(n·k)",
        Sampled::Reversible,
    ),
    (
        "neighbour sampling",
        "O(c^L·n·k²)",
        "O(L·log c + L·log k)",
        "O(b·c^L·k)",
        Sampled::Neighbours,
    ),
    (
        "neighbour sampling with history",
        "O(c^L·n·k² + L·m·k)",
        "O(L·log c + L·log k)",
        "O(L·n·k + b·c^L·k)",
        Sampled::History,
    ),
    ("layer sampling", "O(c·L·n·k²)", "O(L·log c + L·log k)", "O(b·c·L·k)", Sampled::Layers),
    (
        "sub-graph sampling",
        "O(W_pre + L·m·k + L·n·k²)",
        "O(D_pre + L·log d + L·log k)",
        "O(b·L·k)",
        Sampled::Parts,
    ),
];

/// All of them with numbers.
pub(super) fn all(view: &View<'_>) -> Result<Vec<Scheme>> {
    let nodes = view.graph().n_nodes().max(1);
    let batches = view.case.train.len().max(1).div_ceil(BATCH);
    let numbered = SCHEMES.iter().map(|&(name, work_order, depth_order, memory_order, sampled)| {
        let (sizes, times) = match sampled {
            Sampled::No | Sampled::Reversible => (view.case.sizes.clone(), 1),
            Sampled::Parts => (part(view), nodes.div_ceil(BATCH)),
            _ => (batch(view, sampled), batches),
        };
        let subject = Subject { plan: view.case.plan, sizes: &sizes, degree: view.degree };
        // What is done once for a whole graph is done for every batch.
        let whole = matches!(sampled, Sampled::No | Sampled::Reversible);
        let tally = subject.steps(|step| !whole || step.phase != Phase::Once);
        let more = match sampled {
            Sampled::History => history_work(view),
            Sampled::Reversible => subject.steps(|step| step.phase == Phase::Forward).work as f64,
            _ => 0.0,
        };
        Scheme {
            name,
            work_order,
            depth_order,
            memory_order,
            work: tally.work as f64 * times as f64 + more,
            memory_bytes: match sampled {
                Sampled::Reversible => one_layer(view),
                _ => view.case.plan.slot_bytes(&sizes) as f64,
            },
        }
    });
    Ok(numbered.collect())
}

/// Bytes of a layer's values and their gradients: all that reversible layers keep.
fn one_layer(view: &View<'_>) -> f64 {
    let slots = view.case.plan.slot_lens(view.case.sizes);
    2.0 * super::F32 * slots.into_iter().max().unwrap_or(0) as f64
}

/// Old values of all neighbours are added up in every layer.
fn history_work(view: &View<'_>) -> f64 {
    let width: usize = view.exchanges().iter().map(|exchange| exchange.width).sum();
    view.graph().n_edges() as f64 * width as f64
}

/// What a batch of sampled neighbours has at most: a node brings `c` others to the layer before.
fn batch(view: &View<'_>, sampled: Sampled) -> Sizes {
    let mut sizes = view.case.sizes.clone();
    let levels = sizes.nodes.len();
    let nodes = view.graph().n_nodes();
    let drawn = FAN_OUT.min(view.degree.max(1));
    let mut wanted = BATCH.min(view.case.train.len().max(1));
    let seeds = wanted;
    for level in (0..levels).rev() {
        sizes.nodes[level] = wanted.min(nodes);
        if level > 0 {
            sizes.entries[level - 1] = sizes.nodes[level] * drawn;
            wanted = match sampled {
                Sampled::Layers => seeds * (1 + drawn),
                _ => wanted.saturating_mul(1 + drawn),
            };
        }
    }
    scaled_features(view, &mut sizes);
    sizes
}

/// A part of the graph with its own edges, as many per node as the whole has.
fn part(view: &View<'_>) -> Sizes {
    let mut sizes = view.case.sizes.clone();
    let (nodes, edges) = (view.graph().n_nodes().max(1), view.graph().n_edges());
    let own = BATCH.min(nodes);
    sizes.nodes.fill(own);
    sizes.entries.fill(edges * own / nodes);
    scaled_features(view, &mut sizes);
    sizes
}

fn scaled_features(view: &View<'_>, sizes: &mut Sizes) {
    let all = view.graph().n_nodes().max(1);
    let here = sizes.nodes.first().copied().unwrap_or(0);
    sizes.feature_entries = view.case.sizes.feature_entries * here / all;
}
