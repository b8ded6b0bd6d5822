//! Layers as people count them, with what each asks for: what a plan lists one by one (the linear
//! layers of a GIN layer's network, the hops of APPNP) belongs to one of them.

use lacis_plan::analysis::{Repeated, Repeats, Subject};
use lacis_plan::plan::{Phase, Step};

use super::{Layer, View};
use crate::nn::Config;

const HOPS: &str = "p";
const ITERATIONS: &str = "t";
const LINEAR: &str = "K";

impl View<'_> {
    /// How often a layer repeats its products.
    pub(super) fn repeats(&self) -> Repeats {
        let Config { layers, hops, mlp_layers, .. } = *self.case.config;
        let of = |times: usize, symbol| Some(Repeated { times, symbol });
        match self.case.model {
            "sgc" => Repeats { hops: of(hops.unwrap_or(layers), HOPS), weights: None },
            // Every power of the adjacency has weights of its own.
            "tagcn" => {
                let hops = of(hops.unwrap_or(3), HOPS);
                Repeats { hops, weights: hops }
            }
            // The first of its terms has no hop.
            "cheb" => {
                let hops = of(hops.unwrap_or(3).saturating_sub(1), HOPS);
                Repeats { hops, weights: hops }
            }
            "appnp" => Repeats { hops: of(hops.unwrap_or(10), ITERATIONS), weights: None },
            "gin" => Repeats { hops: None, weights: of(mlp_layers, LINEAR) },
            _ => Repeats::default(),
        }
    }

    /// The layer, from 0, that one of a plan's layers belongs to.
    fn layer_of(&self, listed: u16) -> usize {
        let Config { layers, hops, mlp_layers, embed, shared_weights, .. } = self.case.config;
        // A table of learned rows is a layer before the first.
        let Some(at) = usize::from(listed).checked_sub(usize::from(embed.is_some())) else {
            return 0;
        };
        let first = usize::from(embed.is_some());
        first
            + match self.case.model {
                "gin" => group(at, (0, *layers), *mlp_layers),
                // A linear layer, then what is aggregated and what is mixed of it, by one weight or
                // by two.
                "gcn2" => group(at, (1, *layers), if *shared_weights { 2 } else { 3 }),
                // The last linear layer and all its hops.
                "appnp" => group(at, (layers - 1, 1), 1 + hops.unwrap_or(10)),
                _ => at,
            }
    }

    pub(super) fn layers(&self) -> Vec<Layer> {
        let subject = self.subject();
        let mut layers: Vec<usize> =
            subject.layers().into_iter().map(|listed| self.layer_of(listed)).collect();
        layers.dedup();
        let all = layers.into_iter().map(Some).chain([None]);
        all.map(|layer| self.layer(&subject, layer)).collect()
    }

    fn layer(&self, subject: &Subject<'_>, layer: Option<usize>) -> Layer {
        let phases = [Phase::Once, Phase::Forward, Phase::Backward, Phase::Update];
        let own = |step: &Step| step.layer.map(|listed| self.layer_of(listed)) == layer;
        // What is done once counts with what goes forward.
        let order = |wanted: fn(Phase) -> bool| {
            let order = subject.order(|step| own(step) && wanted(step.phase), self.repeats());
            [order.work(), order.depth()]
        };
        Layer {
            name: layer.map_or("loss, update".to_owned(), |layer| format!("{}", layer + 1)),
            passes: phases.map(|phase| subject.steps(|step| own(step) && step.phase == phase)),
            epoch: subject.steps(|step| own(step) && step.phase != Phase::Once),
            forward_order: order(|phase| matches!(phase, Phase::Once | Phase::Forward)),
            backward_order: order(|phase| phase == Phase::Backward),
            seconds: self.epoch().filter(|(step, _)| own(step)).map(|(_, seconds)| seconds).sum(),
        }
    }
}

/// Where a thing is when, from `first` on, so many groups of `size` things count as one each.
fn group(at: usize, (first, groups): (usize, usize), size: usize) -> usize {
    match at.checked_sub(first) {
        None => at,
        Some(past) if past < groups * size => first + past / size,
        Some(past) => first + groups + past - groups * size,
    }
}

#[cfg(test)]
mod tests {
    use super::group;

    #[test]
    fn groups_are_counted_as_one_each() {
        let found = |first, groups, size| -> Vec<usize> {
            (0..8).map(|at| group(at, (first, groups), size)).collect()
        };
        assert_eq!(found(0, 2, 3), [0, 0, 0, 1, 1, 1, 2, 3]);
        assert_eq!(found(1, 3, 2), [0, 1, 1, 2, 2, 3, 3, 4]);
        assert_eq!(found(1, 1, 5), [0, 1, 1, 1, 1, 1, 2, 3]);
        assert_eq!(found(0, 9, 1), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
