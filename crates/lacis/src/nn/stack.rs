//! Layers on top of each other, with what stands between them, as torch_geometric's `BasicGNN`.

use lacis_core::reference::Activation;
use lacis_plan::Expr;
use lacis_plan::Op;
use lacis_plan::op::NormKind;

use super::build::Stored;
use super::{Build, Config, Init};

/// How the results of all layers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// Beside each other.
    Concat,
    /// The greatest of each element.
    Max,
}

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

/// Builds `config.layers` layers: convolution, norm, function, dropout; the last one bare, unless a
/// linear layer follows: that of all layers' results together, or of what graphs are read out to.
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
    let followed = config.jumping.is_some() || config.readout.is_some();
    for index in 0..config.layers {
        let last = index + 1 == config.layers;
        let bare = last && !followed;
        let outputs = if bare { config.outputs } else { config.hidden };
        let before = x.clone();
        if bare && index > 0 {
            build.embeds(&x);
        }
        x = layer(build, config, &x, Place { index, inputs, outputs, last: bare });
        if !bare {
            x = normed(build, config, x, &format!("norms.{index}"));
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
    if !followed {
        return x;
    }
    let level = build.level();
    let all: Vec<Expr> = kept.iter().map(|x| x.top(level)).collect();
    let mut x = match config.jumping {
        None => x,
        Some(Jump::Concat) => Expr::concat(&all),
        Some(Jump::Max) => all.into_iter().reduce(|a, b| greatest(&a, &b)).unwrap_or(x),
    };
    let width = x.width();
    if let Some(read) = config.readout {
        x = Expr::new(Op::Readout(read), vec![x]);
    }
    let fan = Init::Kaiming { fan: width };
    let w = build.weight("lin.weight".to_owned(), width, config.outputs, fan);
    let b = build.bias("lin.bias".to_owned(), config.outputs, fan);
    let layer = build.layer();
    build.embeds(&x);
    (x * w).biased(&b).in_layer(layer)
}

/// The greater of each two elements, `a + relu(b − a)`: the gradient of equal ones is the first's,
/// as that of torch's `max`.
fn greatest(a: &Expr, b: &Expr) -> Expr {
    a + (b + a.scaled(-1.0)).map(Activation::Relu)
}

/// The norm after a layer, by its name in files.
pub(super) fn normed(build: &mut Build, config: &Config, x: Expr, of: &str) -> Expr {
    let Some(kind) = config.norm else { return x };
    let name = |what: &str| match kind {
        NormKind::Batch => format!("{of}.module.{what}"),
        NormKind::Layer => format!("{of}.{what}"),
    };
    let width = x.width();
    let gamma = build.param(name("weight"), [1, width], Init::Constant(1.0), Stored::Vector);
    let beta = build.param(name("bias"), [1, width], Init::Constant(0.0), Stored::Vector);
    let key = build.key();
    Expr::new(Op::Norm { kind, key }, vec![x, gamma, beta])
}
