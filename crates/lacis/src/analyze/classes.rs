//! Classes of networks, as Besta and Hoefler tabulate them: by what edges carry (the local form),
//! and by the function of the adjacency that they are (the global form).

use lacis_plan::plan::{Operator, Place, Step};

use super::View;

/// A class by what crosses edges. Orders are those of a layer.
#[derive(Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// What a node computes of itself and its neighbours.
    pub local: &'static str,
    /// The order of work where what is computed of one node alone is computed once for it.
    pub work: &'static str,
    /// The same where it is computed anew for every edge.
    pub work_per_edge: &'static str,
    /// The order of depth.
    pub depth: &'static str,
}

/// Every class there is.
pub static CLASSES: &[Class] = &[
    Class {
        name: "convolutional",
        local: "h_i ← φ(h_i, Σ_j c_ij·ψ(h_j))",
        work: "O(m·k + n·k²)",
        work_per_edge: "O(m·k²)",
        depth: "O(log d + log k)",
    },
    Class {
        name: "attentional",
        local: "h_i ← φ(h_i, Σ_j a(h_i, h_j)·ψ(h_j))",
        work: "O(m·k + n·k²)",
        work_per_edge: "O(m·k²)",
        depth: "O(log d + log k)",
    },
    Class {
        name: "message passing",
        local: "h_i ← φ(h_i, Σ_j ψ(h_i, h_j))",
        work: "O(m·k + n·k²)",
        work_per_edge: "O(m·k² + n·k²)",
        depth: "O(log d + log k)",
    },
];

/// A family by its function of the adjacency. Orders are those of a layer.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it computes, as matrices.
    pub global: &'static str,
    /// The orders of work and depth, as Lacis computes it: product by product.
    pub iterated: [&'static str; 2],
    /// How else it could be computed, and the orders of that; absent where there is no other way.
    pub otherwise: Option<[&'static str; 3]>,
}

/// Every family there is.
pub static FAMILIES: &[Family] = &[
    Family {
        name: "linear",
        global: "A·H·W",
        iterated: ["O(m·k + n·k²)", "O(log d + log k)"],
        otherwise: None,
    },
    Family {
        name: "polynomial",
        global: "Σ_s θ_s·A^s·H·W",
        iterated: ["O(p·m·k + n·k²)", "O(p·log d + log k)"],
        otherwise: Some(["dense powers", "O(n³·log p)", "O(log p·log n)"]),
    },
    Family {
        name: "rational, by iteration",
        global: "(I − α·A)⁻¹·H·W",
        iterated: ["O(t·m·k + n·k²)", "O(t·log d + log k)"],
        otherwise: Some(["a dense inverse", "O(n³ + n²·k + n·k²)", "O(log² n + log k)"]),
    },
];

/// Symbols of orders of growth, and what they stand for.
pub static SYMBOLS: &[(&str, &str)] = &[
    ("n", "nodes"),
    ("m", "edges"),
    ("d", "the largest degree"),
    ("k", "columns"),
    ("s", "entries of sparse features"),
    ("g", "graphs"),
    ("q", "pairs of nodes"),
    ("p", "hops"),
    ("t", "iterations"),
    ("K", "linear layers of a layer"),
    ("L", "layers"),
    ("b", "nodes of a batch"),
    ("c", "neighbours drawn"),
    ("W_pre", "work of making the parts"),
    ("D_pre", "its depth"),
];

/// Those symbols that some orders have.
pub(super) fn symbols_of(orders: &[&str]) -> Vec<(&'static str, &'static str)> {
    let named = |c: char| c.is_ascii_alphabetic() || c == '_';
    let used = |symbol: &str| {
        orders.iter().any(|order| order.split(|c| !named(c)).any(|word| word == symbol))
    };
    SYMBOLS.iter().filter(|(symbol, _)| used(symbol)).copied().collect()
}

impl View<'_> {
    /// By what edges carry.
    pub(super) fn class(&self) -> Option<&'static Class> {
        use Operator::{Attention, Gated};
        let has = |what: fn(&Step) -> bool| self.case.plan.steps.iter().any(what);
        let edges = self.case.plan.values.iter().any(|v| matches!(v.place, Place::Adjacency(_)));
        let name = if has(|step| matches!(step.operator, Attention(_))) {
            "attentional"
        } else if has(|step| matches!(step.operator, Gated)) {
            "message passing"
        } else {
            "convolutional"
        };
        CLASSES.iter().find(|class| edges && class.name == name)
    }

    /// By the powers of the adjacency.
    pub(super) fn family(&self) -> &'static Family {
        match (self.case.model, self.repeats().hops) {
            ("appnp", _) => &FAMILIES[2],
            (_, Some(hops)) if hops.times > 1 => &FAMILIES[1],
            _ => &FAMILIES[0],
        }
    }
}
