//! What is decided for known cases, as formulas: a change here is a change of mind.

use lacis_core::reference::Activation;
use lacis_plan::choose::{Chosen, Network, Settings, choose, with_candidate};
use lacis_plan::compose::StopReason;
use lacis_plan::cost::{Analytic, Costs, Work, predict, work};
use lacis_plan::expr::features;
use lacis_plan::op::{Function, LossKind};
use lacis_plan::plan::{Ending, Operator, Phase, Place, Step};
use lacis_plan::{Expr, Op, Sizes};

use crate::nets;

fn network(result: Expr) -> Network {
    let all = Expr::sorted(std::slice::from_ref(&result));
    let params = all.iter().filter(|e| matches!(e.op(), Op::Param { .. })).cloned().collect();
    Network { result, loss: Some(LossKind::Classes), params }
}

/// Two layers, a function between them.
fn two(of: fn(u16, &Expr, usize) -> Expr, widths: [usize; 3]) -> Network {
    let hidden = nets::layer(of(0, &features(widths[0]), widths[1]), 0).map(Activation::Relu);
    network(nets::layer(of(1, &hidden, widths[2]), 1))
}

fn decided(network: &Network, nodes: usize, degree: usize, settings: &Settings) -> Chosen {
    let sizes = Sizes::whole(4, nodes, nodes * degree);
    choose(network, &sizes, &Analytic::default(), settings).unwrap()
}

/// The formula of each layer; what comes from the layer before is `H`, and marks are left out.
fn formulas(chosen: &Chosen) -> Vec<String> {
    let of = chosen.layers.iter().map(|layer| {
        let text = layer.all[layer.chosen].formula.replace('\u{303}', "");
        let Some(from) = text.find("relu(") else { return text };
        let mut depth = 0;
        let closes = |(_, c): &(usize, char)| {
            depth += i32::from(*c == '(') - i32::from(*c == ')');
            *c == ')' && depth == 0
        };
        let to = text[from..].char_indices().find(closes).unwrap().0;
        format!("{}H{}", &text[..from], &text[from + to + 1..])
    });
    of.collect()
}

fn steps(chosen: &Chosen, phase: Phase) -> Vec<String> {
    let of = chosen.plan.steps.iter().filter(|step| step.phase == phase);
    of.map(|step| step.formula.replace('\u{303}', "")).collect()
}

const AGGREGATE_FIRST: &str = "(D^-½·(A·(D^-½·X)))·W0 + b0";
const MULTIPLY_FIRST: &str = "D^-½·(A·(D^-½·(X·W0))) + b0";

#[test]
fn a_gcn_aggregates_where_rows_are_narrow() {
    let batches = Settings { batches: true, ..Settings::default() };
    let narrowing = ["D^-½·(A·(D^-½·(H·W1))) + b1"];
    let widening = ["(D^-½·(A·(D^-½·H)))·W1 + b1"];
    // Features times adjacency are computed once: free, whatever the widths.
    let cases = [
        ([512, 16, 8], Settings::default(), AGGREGATE_FIRST, narrowing),
        ([512, 16, 8], batches.clone(), MULTIPLY_FIRST, narrowing),
        ([16, 512, 8], Settings::default(), AGGREGATE_FIRST, narrowing),
        ([16, 512, 8], batches.clone(), AGGREGATE_FIRST, narrowing),
        ([8, 16, 512], Settings::default(), AGGREGATE_FIRST, widening),
        ([8, 16, 512], batches, AGGREGATE_FIRST, widening),
    ];
    for (widths, settings, first, [second]) in cases {
        for (nodes, degree) in [(100_000, 2), (100_000, 14), (10_000, 1000)] {
            let chosen = decided(&two(nets::gcn, widths), nodes, degree, &settings);
            assert_eq!(formulas(&chosen), [first, second], "{widths:?}, {degree} neighbours");
        }
    }
}

#[test]
fn what_no_epoch_changes_is_computed_once_and_in_one_step() {
    let chosen = decided(&two(nets::gcn, [512, 16, 8]), 100_000, 14, &Settings::default());
    assert_eq!(steps(&chosen, Phase::Once), ["D^-½·(A·(D^-½·X))"]);
    assert_eq!(chosen.plan.savings[..2], ["hoist", "input-grad"]);
    // Its result is all that stays of it.
    let sizes = Sizes::whole(3, 100_000, 1_400_000);
    assert!(chosen.plan.slot_bytes(&sizes) < 100_000 * 4 * 600);
    let without = Settings { without: vec!["hoist".to_owned()], ..Settings::default() };
    let chosen = decided(&two(nets::gcn, [512, 16, 8]), 100_000, 14, &without);
    assert!(steps(&chosen, Phase::Once).is_empty());
    assert_eq!(formulas(&chosen)[0], MULTIPLY_FIRST);
    assert!(!chosen.plan.savings.contains(&"hoist".to_owned()));
}

#[test]
fn a_power_of_the_adjacency_is_computed_hop_by_hop() {
    let settings = Settings::default();
    let net = network(nets::layer(nets::sgc(0, &features(64), 8), 0));
    let chosen = decided(&net, 100_000, 14, &settings);
    let hops = ["D^-½·(A·(D^-½·X))", "D^-½·(A·(D^-½·(D^-½·(A·(D^-½·X)))))"];
    assert_eq!(steps(&chosen, Phase::Once), hops);
    let net = network(nets::layer(nets::tagcn(0, &features(64), 8), 0));
    let chosen = decided(&net, 100_000, 14, &settings);
    assert_eq!(steps(&chosen, Phase::Once).len(), 3);
}

/// Where nothing is computed once, wide features are made narrow before they go anywhere.
#[test]
fn a_sum_of_powers_is_computed_as_horner_does() {
    let settings = Settings { batches: true, ..Settings::default() };
    let net = network(nets::layer(nets::tagcn(0, &features(64), 8), 0));
    let n = |inner: &str| format!("D^-½·(A·(D^-½·({inner})))");
    let third = format!("{} + top1(X)·Wc0", n("X·Wd0"));
    let second = format!("{} + top2(X)·Wb0", n(&third));
    let first = format!("{} + top3(X)·Wa0 + b0", n(&second));
    assert_eq!(formulas(&decided(&net, 100_000, 14, &settings)), [first]);
}

/// The multiplications by weights that a gradient of the features would need are not there.
#[test]
fn features_get_no_gradient_unless_asked_for() {
    let net = two(nets::gcn, [512, 16, 8]);
    let all = Settings::default();
    let without = Settings { without: vec!["input-grad".to_owned()], ..Settings::default() };
    let wide = |settings: &Settings| {
        let chosen = decided(&net, 100_000, 14, settings);
        let backward = chosen.plan.steps.iter().filter(|step| step.phase == Phase::Backward);
        let outputs = backward.flat_map(|step| step.outputs.clone());
        let values = outputs.map(|output| chosen.plan.values[output].shape);
        values.filter(|shape| *shape == features(512).shape()).count()
    };
    assert_eq!(wide(&all), 0);
    assert!(wide(&without) > 0);
}

#[test]
fn a_gin_adds_its_own_rows_in_the_adjacency() {
    let chosen = decided(&two(nets::gin, [512, 16, 8]), 100_000, 14, &Settings::default());
    let found = formulas(&chosen);
    // Where it is done in each epoch, beside the product is cheaper: it fills what is there anyway.
    assert_eq!(found, ["((A + 1.25·I)·X)·W0 + b0", "A·(H·W1) + 1.25·top2(relu(H1)·W1) + b1"]);
    let made = chosen.plan.values.iter().filter(|v| matches!(v.place, Place::Matrix(_))).count();
    assert_eq!(made, chosen.plan.matrices);
    let chosen = decided(&two(nets::gin_learned, [512, 16, 8]), 100_000, 14, &Settings::default());
    assert!(chosen.layers.iter().all(|layer| layer.stop == StopReason::Complete));
}

#[test]
fn attention_is_folded_where_features_are_much_narrower_than_heads() {
    let net = |wide: usize, out: usize, heads: usize| {
        network(nets::layer(nets::gat(0, &features(wide), heads, out, 0.0), 0))
    };
    let formula =
        |net: &Network| formulas(&decided(net, 100_000, 14, &Settings::default())).swap_remove(0);
    assert_eq!(formula(&net(8, 256, 1)), "attend(A, X, t0·W0ᵀ, u0·W0ᵀ)·W0 + b0");
    assert_eq!(formula(&net(256, 8, 1)), "attend(A, X·W0, t0, u0) + b0");
    assert_eq!(formula(&net(8, 256, 2)), "attend(A, X·W0, t0, u0) + b0");
}

/// Bias and function are part of the product before them; scalings are part of the aggregation.
#[test]
fn a_gcn_layer_is_two_steps() {
    let settings = Settings { batches: true, ..Settings::default() };
    let chosen = decided(&two(nets::gcn, [512, 16, 8]), 100_000, 14, &settings);
    let forward = chosen.plan.steps.iter().filter(|step| step.phase == Phase::Forward);
    let kinds: Vec<&str> = forward
        .map(|step| match step.operator {
            Operator::Gemm { .. } => "gemm",
            Operator::Spmm { left: true, right: true, ending } if ending.bias => "spmm",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["gemm", "spmm", "gemm", "spmm"]);
}

#[test]
fn plans_above_the_limit_of_memory_are_left_out() {
    // The fastest keeps wide aggregated features from epoch to epoch.
    let network = two(nets::gcn, [256, 16, 8]);
    let with = |memory| {
        let chosen = decided(&network, 10_000, 10, &Settings { memory, ..Settings::default() });
        chosen.plan.check().unwrap();
        chosen
    };
    let free = with(None);
    let limited = with(Some(free.memory.total() - 1));
    assert_eq!((free.over, limited.over), (0, 0));
    assert!(limited.memory.total() < free.memory.total());
    assert!(limited.predicted.epoch(200) > free.predicted.epoch(200));
    let least = with(Some(0));
    assert_eq!(least.over, least.memory.total());
    assert!(least.memory.total() <= limited.memory.total());
}

/// Two layers of attention: each is weighed with the other as it was chosen in the end.
#[test]
fn no_layer_would_be_cheaper_computed_another_way() {
    let settings = Settings::default();
    let gat = |level: u16, x: &Expr, out: usize| nets::gat(level, x, 1, out, 0.0);
    let widths = [[64, 64, 64], [256, 16, 128], [16, 512, 8], [8, 16, 512], [32, 256, 256]];
    for (of, widths) in [nets::gcn, gat].into_iter().flat_map(|of| widths.map(|w| (of, w))) {
        let hidden =
            nets::layer(of(0, &features(widths[0]), widths[1]), 0).map(Activation::Elu(1.0));
        let net = network(nets::layer(of(1, &hidden, widths[2]), 1));
        let (sizes, costs) = (Sizes::whole(4, 20_000, 300_000), Analytic::default());
        let chosen = choose(&net, &sizes, &costs, &settings).unwrap();
        let epoch = chosen.predicted.epoch(sizes.iterations);
        for (at, layer) in chosen.layers.iter().enumerate() {
            for index in layer.kept() {
                let of = (&net, &chosen);
                let other = with_candidate(of, (at, index), (&sizes, &costs), &settings).unwrap();
                let other = predict(&other, &sizes, &costs).unwrap().epoch(sizes.iterations);
                assert!(other > epoch * (1.0 - 1e-6), "{widths:?}, layer {at}: {other} < {epoch}");
            }
        }
    }
}

#[test]
fn a_function_costs_something_inside_a_product_too() {
    let of = |activation| {
        let hidden = nets::layer(nets::gcn(0, &features(64), 32), 0).map(activation);
        let net = network(nets::layer(nets::gcn(1, &hidden, 8), 1));
        let chosen = decided(&net, 1000, 5, &Settings::default());
        let sizes = Sizes::whole(4, 1000, 5000);
        let first = chosen.plan.steps.iter().find(|step| step.phase == Phase::Forward).unwrap();
        Analytic::default().seconds(&work(&chosen.plan, first, &sizes)).unwrap()
    };
    let (elu, relu) = (of(Activation::Elu(1.0)), of(Activation::Relu));
    assert!((elu - relu - 32_000.0 * lacis_plan::cost::HARD).abs() < 1e-12, "{elu} {relu}");
}

/// Both halves of SAGE are one step each way, and the function between layers has no step of its
/// own on the way back: the gradient takes the place of the function's value.
#[test]
fn dense_products_take_over_what_is_around_them() {
    let network = two(nets::sage, [64, 32, 8]);
    let chosen = decided(&network, 10_000, 10, &Settings::default());
    let plan = &chosen.plan;
    let gemms = |wanted: fn(&Ending) -> bool| {
        let fits = |step: &&Step| match step.operator {
            Operator::Gemm { ending, .. } => wanted(&ending),
            _ => false,
        };
        plan.steps.iter().filter(fits).collect::<Vec<_>>()
    };
    let both = gemms(|ending| ending.plus && ending.function == Function::Relu);
    assert_eq!(both.len(), 1);
    assert_eq!(both[0].inputs.len(), 5, "two products and a bias");
    let gated = gemms(|ending| ending.gate.is_some());
    assert_eq!(gated.len(), 1);
    assert!(matches!(gated[0].operator, Operator::Gemm { ending, .. } if ending.plus));
    assert_eq!(gated[0].inputs.last().copied(), Some(both[0].outputs[0]));
    assert_eq!(plan.slot_of(gated[0].outputs[0]), plan.slot_of(both[0].outputs[0]));
    let alone = |step: &Step| matches!(step.operator, Operator::EachGrad { .. });
    assert!(!plan.steps.iter().any(alone));
    let apart = Settings { without: vec!["fuse".to_owned()], ..Settings::default() };
    let apart = decided(&network, 10_000, 10, &apart);
    assert!(apart.plan.steps.iter().any(alone));
    let sizes = Sizes::whole(4, 10_000, 10_000 * 10);
    assert!(plan.slot_bytes(&sizes) < apart.plan.slot_bytes(&sizes));
}

/// A second product of fewer rows costs as much less.
#[test]
fn a_second_product_costs_what_its_rows_do() {
    let plan = decided(&two(nets::sage, [64, 32, 8]), 10_000, 10, &Settings::default()).plan;
    let gated = |step: &&Step| matches!(step.operator, Operator::Gemm { ending, .. } if ending.gate.is_some());
    let step = plan.steps.iter().find(gated).unwrap();
    for (last, terms) in [(10_000, 8 + 8), (2_500, 8 + 2)] {
        let mut sizes = Sizes::whole(3, 10_000, 100_000);
        sizes.nodes[2] = last;
        let Work::Gemm { sizes, .. } = work(&plan, step, &sizes) else {
            panic!("{}", step.formula)
        };
        assert_eq!(sizes, [10_000, 32, terms]);
    }
}

/// The gradient of squares goes over the results, which are read on the way.
#[test]
fn squares_need_room_for_results() {
    let classes = two(nets::gcn, [64, 32, 8]);
    let squares = Network { loss: Some(LossKind::Squares), ..classes.clone() };
    let slots = [classes, squares].map(|network| {
        let chosen = decided(&network, 10_000, 10, &Settings::default());
        chosen.memory.slots
    });
    assert_eq!(slots[1] - slots[0], 10_000 * 8 * 4);
}
