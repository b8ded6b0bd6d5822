//! Which kinds of networks take which options: one table. An option that a kind has no use for is
//! an error that names it, not a network that quietly ignores what was asked.

use lacis_core::{Error, Result};

use super::{Config, Jump};

/// An option that not all kinds take.
pub struct Choice {
    /// What `--help` calls it.
    pub name: &'static str,
    /// The kinds that take it.
    pub models: &'static [&'static str],
    /// Whether a configuration asks for something else than usual.
    pub asked: fn(&Config) -> bool,
}

/// Kinds whose layers stand on each other, with something between them.
const STACKED: &[&str] =
    &["gcn", "sage", "gin", "gat", "gatv2", "tagcn", "cheb", "appnp", "gatedgcn", "mlp"];
const ATTENTION: &[&str] = &["gat", "gatv2"];
const WITH_BIAS: &[&str] =
    &["gcn", "sage", "gin", "gat", "gatv2", "sgc", "tagcn", "cheb", "appnp", "gatedgcn", "mlp"];

macro_rules! choice {
    ($name:literal, $models:expr, $asked:expr) => {
        Choice { name: $name, models: $models, asked: $asked }
    };
}

/// Every such option.
pub static CHOICES: &[Choice] = &[
    choice!("norm", STACKED, |c| c.norm.is_some()),
    choice!("residual", STACKED, |c| c.residual),
    choice!("jumping", STACKED, |c| c.jumping.is_some()),
    choice!("aggregate", &["sage"], |c| c.aggregate != super::sage::Aggregate::Mean),
    choice!("eps", &["gin"], |c| c.eps != 0.0),
    choice!("learn-eps", &["gin"], |c| c.learn_eps),
    choice!("mlp-layers", &["gin"], |c| c.mlp_layers != 1),
    choice!("no-bias", WITH_BIAS, |c| !c.bias),
    choice!("no-root-weight", &["sage", "gatedgcn"], |c| !c.root_weight),
    choice!("normalize", &["sage"], |c| c.normalize),
    choice!("no-normalize", &["gcn"], |c| !c.degrees),
    choice!("hops", &["tagcn", "cheb", "appnp", "sgc"], |c| c.hops.is_some()),
    choice!("teleport", &["appnp", "gcn2"], |c| c.alpha != 0.1),
    choice!("edge-dropout", &["appnp"], |c| c.edge_dropout != 0.0),
    choice!("theta", &["gcn2"], |c| c.theta != 0.5),
    choice!("no-shared-weights", &["gcn2"], |c| !c.shared_weights),
    choice!("heads", ATTENTION, |c| c.heads != Config::HEADS),
    choice!("out-heads", ATTENTION, |c| c.out_heads != 1),
    choice!("negative-slope", ATTENTION, |c| c.slope != 0.2),
];

/// Whether a kind takes everything that a configuration asks for.
///
/// # Errors
/// With the first option that does nothing.
pub fn check(model: &str, config: &Config) -> Result<()> {
    let idle = |choice: &&Choice| (choice.asked)(config) && !choice.models.contains(&model);
    if let Some(choice) = CHOICES.iter().find(idle) {
        let who = choice.models.join(", ");
        let problem = format!("does nothing for {model}; it is an option of {who}");
        return Err(Error::argument(format!("--{}", choice.name), problem));
    }
    let followed = config.readout.is_some() || config.jumping.is_some();
    if config.out_heads != 1 && followed {
        let problem = "a linear layer follows the last convolution, whose heads are put together; \
                       it does nothing with --jumping or where graphs are read out";
        return Err(Error::argument("--out-heads", problem));
    }
    Ok(())
}

/// Whether every number of a configuration is one that formulas can have.
pub(super) fn check_ranges(config: &Config) -> Result<()> {
    let wrong = |name: &str, number: f64, right: &str| {
        Err(Error::argument(name, format!("{number} is not {right}")))
    };
    let probabilities = [
        ("dropout", config.dropout),
        ("dropout", config.input_dropout),
        ("edge-dropout", config.edge_dropout),
    ];
    for (name, p) in probabilities {
        if !(0.0..1.0).contains(&p) {
            return wrong(name, p, "a probability below 1");
        }
    }
    match *config {
        Config { alpha, .. } if !(0.0..=1.0).contains(&alpha) => {
            wrong("teleport", alpha, "a share from 0 to 1")
        }
        Config { theta, .. } if !(theta.is_finite() && theta >= 0.0) => {
            wrong("theta", theta, "a number from 0 on")
        }
        // Scores keep their order, which the greatest of a node's edges is found by.
        Config { slope, .. } if !(0.0..=1.0).contains(&slope) => {
            wrong("negative-slope", slope, "a slope from 0 to 1")
        }
        Config { eps, .. } if !eps.is_finite() => wrong("eps", eps, "a finite number"),
        _ => Ok(()),
    }
}

/// What `--jumping` calls a way.
impl std::str::FromStr for Jump {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "cat" => Ok(Jump::Concat),
            "max" => Ok(Jump::Max),
            _ => Err(Error::argument(format!("--jumping {text}"), "cat or max would be right")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{MODELS, Model};

    #[test]
    fn an_option_works_or_is_named() {
        for choice in CHOICES {
            let mut config = Config::new(4, 8, 3);
            config.norm = Some(lacis_plan::op::NormKind::Layer);
            (config.residual, config.jumping) = (true, Some(Jump::Max));
            config.aggregate = crate::nn::sage::Aggregate::Max;
            (config.eps, config.learn_eps, config.mlp_layers) = (0.5, true, 2);
            (config.bias, config.root_weight, config.normalize) = (false, false, true);
            (config.degrees, config.hops, config.shared_weights) = (false, Some(2), false);
            (config.alpha, config.theta, config.out_heads, config.slope) = (0.3, 1.0, 2, 0.5);
            (config.edge_dropout, config.heads) = (0.2, 2);
            assert!((choice.asked)(&config), "{}: it can be asked for", choice.name);
            let plain = Config::new(4, 8, 3);
            assert!(!(choice.asked)(&plain), "{}: nobody asked", choice.name);
            for model in choice.models {
                assert!(MODELS.iter().any(|kind| kind.name == *model), "{model}");
            }
        }
        let refused = |model: &str, change: fn(&mut Config)| {
            let mut config = Config::new(4, 8, 3);
            change(&mut config);
            Model::new(model, &config, None).err().map(|error| error.to_string())
        };
        for (model, change, name) in [
            ("gcn2", (|c| c.jumping = Some(Jump::Concat)) as fn(&mut Config), "--jumping"),
            ("sgc", |c| c.residual = true, "--residual"),
            ("gcn", |c| c.aggregate = crate::nn::sage::Aggregate::Sum, "--aggregate"),
            ("gin", |c| c.out_heads = 4, "--out-heads"),
            ("gatedgcn", |c| c.heads = 4, "--heads"),
            ("gat", |c| (c.out_heads, c.jumping) = (4, Some(Jump::Max)), "--out-heads"),
            ("gat", |c| c.slope = -0.2, "negative-slope"),
            ("appnp", |c| c.alpha = 1.5, "teleport"),
            ("appnp", |c| c.edge_dropout = 1.0, "edge-dropout"),
            ("gcn", |c| c.edge_dropout = 0.5, "--edge-dropout"),
            ("gcn2", |c| c.theta = f64::NAN, "theta"),
        ] {
            let error = refused(model, change).unwrap();
            assert!(error.starts_with(name), "{model}: {error}");
        }
        assert_eq!(refused("sage", |c| c.aggregate = crate::nn::sage::Aggregate::Sum), None);
    }
}
