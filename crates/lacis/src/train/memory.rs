//! Memory of a training: what it will take, and plans that stay below a limit.

use lacis_core::{Error, Features, Labels, Result};
use lacis_plan::Sizes;
use lacis_plan::choose::{Chosen, Settings, choose};
use lacis_plan::memory::Memory;

use super::setup::model_of;
use super::{Job, Recipe, setup};
use crate::costs::Measured;
use crate::levels::Asked;
use crate::nn::Model;

/// What a process takes that has done nothing yet: its code, stacks and tables.
const PROCESS: usize = 24 << 20;

/// What is kept of a composition beside its formula, of each letter of that, and of a step.
const COMPOSITION: usize = 1000;
const LETTER: usize = 10;
const STEP: usize = 850;

/// What a training takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Graph, features and labels, as they were read.
    pub data: usize,
    /// What the training's plan takes beside them.
    pub training: Memory,
    /// What evaluating takes beside both.
    pub evaluation: Memory,
    /// Labels in the order of the training's rows.
    pub labels: usize,
    /// The plan, and compositions that were looked at, kept to be explained.
    pub planned: usize,
}

impl Needs {
    /// Before anything is planned.
    fn given(job: &Job<'_>, features: &Features) -> Self {
        let own = job.dataset.features().map_or(0, features_bytes);
        let turned = match (features, job.dataset.features()) {
            (Features::Dense(_), Some(Features::Sparse(_))) => features_bytes(features),
            _ => 0,
        };
        let labels = job.dataset.labels().map_or(0, labels_bytes);
        let graph = job.dataset.graph().adjacency().bytes();
        let copied = job.dataset.labels().map_or(0, |of| copied_bytes(of, job.split.train.len()));
        Needs { data: graph + own + turned + labels, labels: copied, ..Needs::default() }
    }

    /// Of forward passes alone.
    pub(super) fn of_forward(job: &Job<'_>, features: &Features, chosen: &Chosen) -> Self {
        Needs { training: chosen.memory, labels: 0, ..Needs::given(job, features) }
    }

    /// What is counted byte by byte.
    pub fn counted(&self) -> usize {
        let plans = self.training.total() + self.evaluation.total();
        self.data + self.labels + self.planned + plans
    }

    /// The process's peak.
    pub fn total(&self) -> usize {
        PROCESS + self.counted()
    }
}

/// A network, and what it is planned for.
pub(super) struct Planning<'a> {
    pub job: &'a Job<'a>,
    pub model: &'a Model,
    pub recipe: &'a Recipe,
    pub asked: Asked<'a>,
    pub sizes: Sizes,
}

/// Plans of training and evaluating.
pub(super) struct Both {
    pub training: Chosen,
    pub evaluation: Chosen,
}

impl Planning<'_> {
    /// The fastest plans that stay below the limit of memory, where there is one; else what there
    /// is limits those that would take more.
    ///
    /// # Errors
    /// When none does: it says how much the smallest takes, and what would take less.
    pub fn plans(&self) -> Result<Both> {
        let both = self.smallest()?;
        let needs = self.needs(&both);
        let settings = &self.recipe.settings;
        match (settings.memory, settings.present) {
            (Some(limit), _) if needs.total() > limit => Err(self.too_large(limit, &needs)),
            (None, Some(present)) if needs.total() > present => {
                let settings = Settings { memory: Some(present), ..settings.clone() };
                let recipe = Recipe { settings, ..self.recipe.clone() };
                Planning { recipe: &recipe, sizes: self.sizes.clone(), ..*self }.plans()
            }
            _ => Ok(both),
        }
    }

    /// What plans take.
    pub fn needs(&self, both: &Both) -> Needs {
        let mut needs = Needs::given(self.job, self.asked.features);
        needs.training = both.training.memory;
        let all = both.training.layers.iter().flat_map(|layer| &layer.all);
        let kept: usize = all.map(|one| COMPOSITION + LETTER * one.formula.len()).sum();
        needs.planned = kept + STEP * both.training.plan.steps.len();
        // Matrices of whole graphs are there already; the best weights so far are kept apart.
        let Memory { slots, given, .. } = both.evaluation.memory;
        let given = if self.is_whole() { 0 } else { given };
        needs.evaluation = Memory { slots, given, weights: needs.training.weights };
        needs
    }

    fn is_whole(&self) -> bool {
        self.sizes.nodes.iter().all(|&nodes| nodes == self.job.dataset.graph().n_nodes())
    }

    /// The fastest plans below the limit, or those that come nearest to it.
    fn smallest(&self) -> Result<Both> {
        let Some(limit) = self.recipe.settings.memory else {
            return Ok(Both { training: self.training(None)?, evaluation: self.evaluation(None)? });
        };
        let mut both = self.beside(limit, self.evaluation(None)?)?;
        // What planning itself keeps is known only now.
        let room = limit.saturating_sub(self.needs(&both).planned);
        if self.needs(&both).total() > limit {
            both = self.beside(room, self.evaluation(None)?)?;
        }
        if self.needs(&both).total() > limit {
            both = self.beside(room, self.evaluation(Some(0))?)?;
        }
        Ok(both)
    }

    /// The training's plan in what an evaluation leaves of the limit.
    fn beside(&self, limit: usize, evaluation: Chosen) -> Result<Both> {
        let weights: usize = self.model.params.iter().map(|p| p.shape[0] * p.shape[1]).sum();
        let mut fixed = Needs::given(self.job, self.asked.features);
        let Memory { slots, given, .. } = evaluation.memory;
        let given = if self.is_whole() { 0 } else { given };
        fixed.evaluation = Memory { slots, given, weights: 3 * weights * size_of::<f32>() };
        let training = self.training(Some(limit.saturating_sub(fixed.total())))?;
        Ok(Both { training, evaluation })
    }

    fn training(&self, memory: Option<usize>) -> Result<Chosen> {
        let settings = Settings { memory, ..self.recipe.settings.clone() };
        choose(&self.model.network, &self.sizes, &Measured(self.job.profile), &settings)
    }

    /// The plan of forward passes alone.
    fn evaluation(&self, memory: Option<usize>) -> Result<Chosen> {
        setup::inference_plan(self.model, self.recipe, (self.job, self.asked.features), memory)
    }

    fn too_large(&self, limit: usize, needs: &Needs) -> Error {
        let fixed = PROCESS + needs.data + needs.labels;
        let narrower = match self.narrower(limit) {
            Some((hidden, bytes)) => format!("--hidden {hidden} would take {}, and ", mib(bytes)),
            None => String::new(),
        };
        let problem = format!(
            "{} is too little: the smallest plan takes {}, of which {} are the process with graph, \
             features and labels; {narrower}--sample neighbor:15,10 takes batches instead of the \
             whole graph",
            mib(limit),
            mib(needs.total()),
            mib(fixed),
        );
        Error::argument("memory limit", problem)
    }

    /// The widest hidden layers, of half the width or a half of that, that stay below the limit.
    fn narrower(&self, limit: usize) -> Option<(usize, usize)> {
        let mut recipe = self.recipe.clone();
        let unit = recipe.config.heads.max(1);
        while recipe.config.hidden / 2 >= unit.max(2) {
            recipe.config.hidden = recipe.config.hidden / 2 / unit * unit;
            let loss = self.model.network.loss;
            let model = model_of(&recipe, loss).ok()?;
            let sizes = self.sizes.clone();
            let other = Planning { model: &model, recipe: &recipe, sizes, ..*self };
            let bytes = other.needs(&other.smallest().ok()?).total();
            if bytes <= limit {
                return Some((recipe.config.hidden, bytes));
            }
        }
        None
    }
}

/// As people read it.
fn mib(bytes: usize) -> String {
    match bytes >> 20 {
        0..1024 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

fn features_bytes(features: &Features) -> usize {
    match features {
        Features::Dense(x) => x.n_rows() * x.stride() * size_of::<f32>(),
        Features::Sparse(x) => x.bytes(),
    }
}

fn labels_bytes(labels: &Labels) -> usize {
    match labels {
        Labels::Classes { of, .. } => of.len() * size_of::<i32>(),
        Labels::Multi(of) => of.bytes(),
        Labels::Targets(of) => of.n_rows() * of.n_cols() * size_of::<f32>(),
    }
}

/// Labels of the rows that train, as the loss reads them.
fn copied_bytes(labels: &Labels, rows: usize) -> usize {
    let columns = match labels {
        Labels::Classes { .. } => 1,
        Labels::Multi(of) => of.n_cols(),
        Labels::Targets(of) => of.n_cols(),
    };
    rows * (columns * size_of::<f32>() + size_of::<u32>())
}
