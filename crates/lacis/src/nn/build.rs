//! [`Build`]: what a network's formula is written with.

use lacis_plan::Expr;
use lacis_plan::expr::{adjacency, degrees, features, param, sparse_features};
use lacis_plan::op::Graph;

use super::{Config, Init};

/// A parameter: its formula, its first numbers, its name and shape in files.
#[derive(Clone, Debug)]
pub struct ParamSpec {
    /// As it stands in formulas.
    pub expr: Expr,
    /// Its first numbers.
    pub init: Init,
    /// Its name in a state dict of torch_geometric.
    pub name: String,
    /// Its name in formulas.
    pub symbol: String,
    /// Rows and columns in formulas.
    pub shape: [usize; 2],
    /// Its shape in files, where it is written as it is.
    pub stored: Stored,
}

/// How a parameter is written to files, as torch_geometric has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Outputs × inputs: torch's `Linear` holds the transpose.
    Transposed,
    /// One dimension.
    Vector,
    /// `1 × heads × channels`.
    Heads,
    /// As it is.
    AsIs,
}

/// Levels, keys and parameters of a network that is being written.
#[derive(Debug, Default)]
pub struct Build {
    level: u16,
    layer: u16,
    key: u32,
    params: Vec<ParamSpec>,
    hidden: Option<Expr>,
}

impl Build {
    /// At level 0.
    pub fn new() -> Self {
        Build::default()
    }

    /// The features, as the configuration says they are stored, some of them dropped.
    pub fn features(&mut self, config: &Config) -> Expr {
        let x = match config.sparse_features {
            true => sparse_features(config.inputs),
            false => features(config.inputs),
        };
        let key = self.key();
        x.dropout(config.input_dropout, key)
    }

    /// The level that the nodes are at.
    pub fn level(&self) -> u16 {
        self.level
    }

    /// A number that nothing else of the network has.
    pub fn key(&mut self) -> u32 {
        self.key += 1;
        self.key
    }

    /// The number of the next layer.
    pub fn layer(&mut self) -> u16 {
        self.layer += 1;
        self.layer - 1
    }

    /// The adjacency to the next level, where the nodes are afterwards.
    pub fn aggregate(&mut self, graph: Graph) -> Expr {
        self.level += 1;
        adjacency(graph, self.level - 1)
    }

    /// A factor on both sides of [`Build::aggregate`]: `D^p·A·D^p` with `p = half_power / 2`, as
    /// its factors.
    pub fn normalised(&mut self, graph: Graph, half_power: i8) -> [Expr; 3] {
        let a = self.aggregate(graph);
        [degrees(graph, self.level, half_power), a, degrees(graph, self.level - 1, half_power)]
    }

    /// Weights of a linear layer, `inputs × outputs`; `name` as torch_geometric has it.
    pub fn weight(&mut self, name: String, inputs: usize, outputs: usize, init: Init) -> Expr {
        self.param(name, [inputs, outputs], init, Stored::Transposed)
    }

    /// A bias.
    pub fn bias(&mut self, name: String, width: usize, init: Init) -> Expr {
        self.param(name, [1, width], init, Stored::Vector)
    }

    /// A bias, where there is to be one.
    pub fn bias_if(
        &mut self,
        wanted: bool,
        name: String,
        width: usize,
        init: Init,
    ) -> Option<Expr> {
        wanted.then(|| self.bias(name, width, init))
    }

    /// Any parameter.
    pub fn param(&mut self, name: String, shape: [usize; 2], init: Init, stored: Stored) -> Expr {
        let mut symbol = symbol(&name);
        while self.params.iter().any(|param| param.symbol == symbol) {
            symbol.push('\'');
        }
        let expr = param(symbol.clone(), shape[0], shape[1]);
        self.params.push(ParamSpec { expr: expr.clone(), init, name, symbol, shape, stored });
        expr
    }

    /// Says that these are the activations of the last hidden layer: what embeddings are.
    pub fn embeds(&mut self, x: &Expr) {
        self.hidden = Some(x.clone());
    }

    /// The activations of the last hidden layer, where the network has one.
    pub fn hidden(&self) -> Option<&Expr> {
        self.hidden.as_ref()
    }

    /// All parameters, in the order in which they were made.
    pub fn into_params(self) -> Vec<ParamSpec> {
        self.params
    }
}

/// `x + b`, where there is a bias.
pub fn with_bias(x: Expr, b: Option<&Expr>) -> Expr {
    match b {
        Some(b) => x.biased(b),
        None => x,
    }
}

/// A parameter's symbol in formulas: `convs.0.lin.weight` is `W1`, `convs.0.lins.2.weight` `W1_2`.
fn symbol(name: &str) -> String {
    let (mut letter, mut layer, mut rest) = (String::new(), String::new(), String::new());
    for part in name.split('.') {
        match (part, part.parse::<usize>()) {
            (_, Ok(number)) if layer.is_empty() => layer = (number + 1).to_string(),
            (_, Ok(number)) => rest.push_str(&format!("_{number}")),
            ("convs" | "lins" | "lin" | "nn" | "module", _) => {}
            ("weight" | "weight1", _) => letter = "W".to_owned(),
            ("weight2", _) => letter = "V".to_owned(),
            ("bias", _) => letter = "b".to_owned(),
            (other, _) => rest.push_str(&format!("_{other}")),
        }
    }
    match letter.as_str() {
        "" => format!("{}{layer}", rest.trim_start_matches('_')),
        letter => format!("{letter}{layer}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_short() {
        assert_eq!(symbol("convs.0.lin.weight"), "W1");
        assert_eq!(symbol("convs.1.bias"), "b2");
        assert_eq!(symbol("convs.1.lin_l.weight"), "W2_lin_l");
        assert_eq!(symbol("convs.0.att_src"), "att_src1");
        assert_eq!(symbol("convs.0.lins.2.weight"), "W1_2");
        assert_eq!(symbol("convs.0.lins.2.bias"), "b1_2");
        assert_eq!(symbol("norms.0.module.weight"), "W1_norms");
    }
}
