//! Both sides of every rule give the same numbers, and so does every form of a layer.

use lacis_plan::expr::{adjacency, degrees, features, param};
use lacis_plan::op::Graph;
use lacis_plan::rules::{RULES, forms};
use lacis_plan::{Expr, Op};

use crate::eval::{World, assert_same, eval};
use crate::nets;

fn worlds(width: usize, make: fn(&[usize], usize, u64) -> World) -> Vec<World> {
    let nodes: [&[usize]; 4] = [&[8; 5], &[11, 7, 5, 3, 2], &[6, 6, 4, 4, 1], &[3, 2, 2, 1, 1]];
    let numbered = nodes.iter().zip(1..);
    numbered.map(|(nodes, seed)| make(nodes, width, seed)).collect()
}

fn assert_equal(left: &Expr, right: &Expr, width: usize, what: &str) {
    let mut all = worlds(width, World::new);
    // Horner's form moves rows of one level's matrix to the next one's.
    if !what.contains("horner") {
        all.extend(worlds(width, World::open));
    }
    for world in all {
        let world = world.with_params([left, right], 7);
        let (found, expected) = (eval(right, &world).dense(), eval(left, &world).dense());
        assert_same(&found, &expected, &format!("{what}: {right} of {left}"));
    }
}

#[test]
fn every_rule_applies_to_its_example_and_keeps_its_value() {
    for rule in RULES {
        let left = (rule.example)();
        left.check().unwrap();
        let right = (rule.apply)(&left).unwrap_or_else(|| panic!("{} applies", rule.name));
        right.check().unwrap();
        assert_ne!(left, right, "{} changes something", rule.name);
        assert_eq!(left.shape(), right.shape(), "{}", rule.name);
        assert_equal(&left, &right, 6, rule.name);
    }
}

#[test]
fn every_form_of_a_layer_is_that_layer() {
    let x = features(nets::WIDTH);
    let bodies = [
        ("gcn", nets::gcn(0, &x, 4)),
        ("sage", nets::sage(0, &x, 4)),
        ("gin", nets::gin(0, &x, 4)),
        ("learned gin", nets::gin_learned(0, &x, 4)),
        ("sgc", nets::sgc(0, &x, 4)),
        ("tagcn", nets::tagcn(0, &x, 4)),
        ("gat", nets::gat(0, &x, 1, 4, 0.25)),
        ("gat of two heads", nets::gat(0, &x, 2, 4, 0.0)),
        ("gatv2", nets::gatv2(0, &x, 1, 4)),
        ("pooled", nets::pooled(0, &x, 4)),
    ];
    for (name, body) in bodies {
        for body in [body.clone(), nets::layer(body, 0).args()[0].clone()] {
            let (all, complete) = forms(&body, 200);
            assert!(complete, "{name} has few forms");
            for (form, names) in all {
                assert_equal(&body, &form, nets::WIDTH, &format!("{name} by {names:?}"));
            }
        }
    }
}

/// Sums that look like Horner's but are not, because a diagonal or another matrix is in the way.
#[test]
fn horner_takes_powers_of_one_matrix_only() {
    let x = features(6);
    let w = |name| param(name, 6, 4);
    let (bare, weighted) = (adjacency(Graph::BARE, 0), adjacency(Graph::WEIGHTED, 0));
    let second = adjacency(Graph::BARE, 1) * (&bare * &x);
    let d = |level| degrees(Graph::BARE, level, -1);
    let sums = [
        (d(0) * &x).top(1) * w("a") + (&bare * &x) * w("b"),
        x.top(1) * w("a") + (&bare * (d(0) * &x)) * w("b"),
        x.top(1) * w("a") + (&bare * (d(0) * (d(0) * &x))) * w("b"),
        x.top(2) * w("a") + (weighted * &x).top(2) * w("b") + &second * w("c"),
        x.top(2) * w("a") + (d(1) * (&bare * &x)).top(2) * w("b") + &second * w("c"),
        x.top(2) * w("a") + (&bare * (d(0) * &x)).top(2) * w("b") + &second * w("c"),
    ];
    for (at, sum) in sums.iter().enumerate() {
        sum.check().unwrap();
        for (form, names) in forms(sum, 100).0 {
            assert_equal(sum, &form, 6, &format!("sum {at} by {names:?}"));
        }
    }
}

#[test]
fn transposes_go_to_the_leaves() {
    let (x, w) = (features(6), param("W", 6, 4));
    let a = adjacency(Graph::WEIGHTED, 0);
    let d = |level| degrees(Graph::WEIGHTED, level, -1);
    let y = d(1) * (&a * (d(0) * (&x * &w)));
    let sides = [
        (y.t().t(), y.clone()),
        (
            y.t() * y.clone(),
            Expr::new(Op::Mul, vec![Expr::new(Op::Transpose, vec![y.clone()]), y.clone()]),
        ),
        (y.t() * d(1), Expr::new(Op::Transpose, vec![d(1) * &y])),
        (w.t() * x.t(), Expr::new(Op::Transpose, vec![&x * &w])),
        ((w.t() * x.t()) * a.t(), Expr::new(Op::Transpose, vec![&a * (&x * &w)])),
        ((d(1) * &a).t() * &y, a.t() * (d(1) * &y)),
    ];
    for (found, expected) in sides {
        found.check().unwrap();
        assert_equal(&expected, &found, 6, "transposed");
    }
}

/// A dense matrix with nodes as columns, times a sparse one: nothing goes round in circles.
#[test]
fn dense_times_sparse_ends() {
    let turned = Expr::new(Op::Scale(2.0.into()), vec![features(6).t()]);
    let a = adjacency(Graph::WEIGHTED, 0).t();
    let plain = Expr::new(Op::Mul, vec![turned.clone(), a.clone()]);
    assert_equal(&plain, &(&turned * &a), 6, "dense times sparse");
    let d = degrees(Graph::WEIGHTED, 0, -1);
    let plain = Expr::new(Op::Mul, vec![turned.clone(), d.clone()]);
    assert_equal(&plain, &(&turned * &d), 6, "dense times diagonal");
}
