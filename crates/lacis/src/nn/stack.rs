//! Layers on top of each other, with what stands between them, as torch_geometric's `BasicGNN`.

use lacis_core::reference::Activation;
use lacis_plan::Expr;
use lacis_plan::Op;
use lacis_plan::op::NormKind;

use super::build::Stored;
use super::{Build, Config, Init};

/// Where a layer stands: its number, its widths, and whether it is the last.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// From 0.
    pub index: usize,
    /// Columns that come in.
    pub inputs: usize,
    /// Columns that go out.
    pub outputs: usize,
    /// Whether nothing comes after it.
    pub last: bool,
}

/// Builds `config.layers` layers: convolution, norm, function, dropout; the last one bare.
pub fn stack(
    build: &mut Build,
    config: &Config,
    x: &Expr,
    activation: Activation,
    layer: impl Fn(&mut Build, &Config, &Expr, Place) -> Expr,
) -> Expr {
    let mut x = x.clone();
    let mut inputs = config.inputs;
    let mut kept: Vec<Expr> = Vec::new();
    for index in 0..config.layers {
        let last = index + 1 == config.layers;
        let bare = last && !config.jumping;
        let outputs = if bare { config.outputs } else { config.hidden };
        let before = x.clone();
        x = layer(build, config, &x, Place { index, inputs, outputs, last: bare });
        if !bare {
            x = normed(build, config, x, index);
            x = x.map(activation);
            if config.residual && before.kind() == lacis_plan::Kind::Dense && inputs == outputs {
                x = x + before.top(build.level());
            }
            let key = build.key();
            x = x.dropout(config.dropout, key);
        }
        kept.push(x.clone());
        inputs = outputs;
    }
    if !config.jumping {
        return x;
    }
    let level = build.level();
    let together: Vec<Expr> = kept.iter().map(|x| x.top(level)).collect();
    let width = config.hidden * config.layers;
    let fan = Init::Kaiming { fan: width };
    let w = build.weight("lin.weight".to_owned(), width, config.outputs, fan);
    let b = build.bias("lin.bias".to_owned(), config.outputs, fan);
    let layer = build.layer();
    (Expr::concat(&together) * w).biased(&b).in_layer(layer)
}

/// The norm after a layer.
fn normed(build: &mut Build, config: &Config, x: Expr, index: usize) -> Expr {
    let Some(kind) = config.norm else { return x };
    let name = |what: &str| match kind {
        NormKind::Batch => format!("norms.{index}.module.{what}"),
        NormKind::Layer => format!("norms.{index}.{what}"),
    };
    let width = x.width();
    let gamma = build.param(name("weight"), [1, width], Init::Constant(1.0), Stored::Vector);
    let beta = build.param(name("bias"), [1, width], Init::Constant(0.0), Stored::Vector);
    let key = build.key();
    Expr::new(Op::Norm { kind, key }, vec![x, gamma, beta])
}
