//! Every gradient formula against central differences.

use lacis_core::reference::Activation;
use lacis_plan::expr::{features, param};
use lacis_plan::grad::gradients;
use lacis_plan::op::{Extreme, Graph, LossKind, NormKind, Read};
use lacis_plan::{Expr, Op};

use crate::eval::{M, World, eval};
use crate::nets;

/// Checks the gradients of a loss in all its parameters, and in dense features.
fn check(name: &str, loss: &Expr, world: &World) {
    loss.check().unwrap();
    let all = Expr::sorted(std::slice::from_ref(loss));
    let leaf = |e: &&Expr| matches!(e.op(), Op::Param { .. } | Op::Features { sparse: false, .. });
    let of: Vec<Expr> = all.iter().filter(leaf).cloned().collect();
    let value = |world: &World| eval(loss, world).dense().at(0, 0);
    for (x, grad) in of.iter().zip(gradients(loss, &of)) {
        let grad = grad.unwrap_or_else(|| panic!("{name}: {x} has a gradient"));
        grad.check().unwrap();
        assert_eq!(grad.shape(), x.shape(), "{name}: gradient of {x}");
        let grad = eval(&grad, world).dense();
        for i in 0..grad.n_rows() {
            for j in 0..grad.n_cols() {
                let moved = |by: f64| {
                    let mut world = world.clone();
                    number(&mut world, x).row_mut(i)[j] += by;
                    value(&world)
                };
                let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                let off = (slope - grad.at(i, j)).abs() / (1.0 + slope.abs());
                let found = grad.at(i, j);
                assert!(off < 1e-6, "{name}: d {x}[{i}, {j}] is {found}, differences say {slope}");
            }
        }
    }
}

fn number<'a>(world: &'a mut World, x: &Expr) -> &'a mut M {
    match x.op() {
        Op::Param { name, .. } => world.params.get_mut(name).unwrap(),
        _ => &mut world.features,
    }
}

fn squares(x: &Expr) -> Expr {
    Expr::new(Op::Loss(LossKind::Squares), vec![x.clone()])
}

#[test]
fn gradients_of_networks_are_slopes() {
    for case in nets::all() {
        for (nested, seed) in [(false, 1), (true, 2)] {
            check(case.name, &case.loss(), &case.world(nested, seed));
        }
    }
}

#[test]
fn gradients_of_single_operations_are_slopes() {
    let (x, w) = (features(4), param("W", 4, 3));
    let functions = [
        Activation::Relu,
        Activation::LeakyRelu(0.2),
        Activation::LeakyRelu(-0.5),
        Activation::LeakyRelu(0.0),
        Activation::Elu(1.5),
        Activation::Elu(-0.5),
        Activation::Sigmoid,
        Activation::Tanh,
    ];
    let mut all: Vec<(String, Expr)> =
        functions.iter().map(|f| (format!("{f:?}"), (&x * &w).map(*f))).collect();
    let turned = &w.t() * &w;
    let padded = Expr::new(Op::Pad { level: 0 }, vec![(&x * &w).top(2)]);
    let min = Expr::new(
        Op::Extreme(Extreme::Min),
        vec![lacis_plan::expr::adjacency(Graph::BARE, 0), &x * &w],
    );
    let added = [
        ("transposes", &x * &(&w * turned)),
        ("transposed", &(&x * &w).t() * &x),
        ("twice", (&x * &w) + (&x * &w).scaled(-0.5)),
        ("scaled by", x.scaled_by(&param("s", 1, 1)).scaled_by(&param("s", 1, 1))),
        ("bias of a function", (&x * &w).map(Activation::Tanh).biased(&param("b", 1, 3))),
        ("dropped", x.dropout(0.3, 1).dropout(0.2, 2)),
        ("columns", Expr::concat(&[x.columns(1, 2), x.columns(0, 3), &x * &w])),
        ("padded", padded),
        ("min", min),
        ("batch norm", nets::norm(NormKind::Batch, &(&x * &w), 0)),
        ("layer norm", nets::norm(NormKind::Layer, &(&x * &w), 0)),
        ("sum", nets::readout(Read::Sum, &(&x * &w))),
        ("mean", nets::readout(Read::Mean, &(&x * &w))),
        ("max", nets::readout(Read::Max, &(&x * &w))),
    ];
    all.extend(added.map(|(name, expr)| (name.to_owned(), expr)));
    for (name, expr) in all {
        let world = World::new(&[7, 5, 3], 4, 3).with_params([&expr], 3);
        let rows_are_nodes = expr.rows() == x.rows();
        check(&name, &squares(&expr), &world);
        if rows_are_nodes {
            let in_layer = expr.in_layer(3).in_layer(4);
            check(&name, &Expr::new(Op::Loss(LossKind::Binary), vec![in_layer]), &world);
        }
    }
}

/// Two neighbours that are equally great: differences give each one half of the slope.
#[test]
fn greatest_of_equals_share_the_gradient() {
    let x = features(3);
    for extreme in [Extreme::Max, Extreme::Min] {
        let args = vec![lacis_plan::expr::adjacency(Graph::BARE, 0), x.clone()];
        let y = Expr::new(Op::Extreme(extreme), args);
        let mut world = World::new(&[4, 4], 3, 1);
        // Node 0 hears 1 and 2, which say the same; 3 says less and more.
        world.edges = vec![(0, 1, 1.0), (0, 2, 1.0), (0, 3, 1.0), (2, 3, 1.0), (2, 3, 1.0)];
        let sign = if extreme == Extreme::Max { -1.0 } else { 1.0 };
        world.features = M::from_fn(4, 3, |i, j| if i == 3 { 5.0 * sign } else { j as f64 });
        check("ties", &squares(&y), &world);
    }
}

#[test]
fn what_a_loss_does_not_depend_on_has_no_gradient() {
    let (x, w) = (features(4), param("W", 4, 3));
    let found = gradients(&squares(&(&x * &w)), &[param("V", 4, 3), w]);
    assert!(found[0].is_none() && found[1].is_some());
}
