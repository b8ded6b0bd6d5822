//! Plans compute what their formulas say, whatever the planner may use, and keep their order.

use lacis_plan::choose::{Chosen, Network, RuleSet, SAVINGS, Settings, choose, with_candidate};
use lacis_plan::cost::Analytic;
use lacis_plan::expr::{adjacency, features, param};
use lacis_plan::grad::gradients;
use lacis_plan::op::{Function, Graph, LossKind};
use lacis_plan::plan::{Ending, Form, Operator, Phase, Place, Precision, Step};
use lacis_plan::{Expr, Op, Plan, Sizes};

use lacis_core::reference::Activation;

use crate::eval::{M, World, assert_same, eval};
use crate::nets::{self, Case};
use crate::run::run;

/// What the formulas themselves give.
struct Truth {
    worlds: [World; 2],
    found: Vec<(M, f64, Vec<M>)>,
}

impl Truth {
    fn of(case: &Case, nested: bool) -> Truth {
        let (first, mut second) = (case.world(nested, 5), case.world(nested, 5));
        second = second.with_params([&case.network.result], 6);
        let worlds = [first, second];
        let grads = gradients(&case.loss(), &case.network.params);
        let found = worlds.iter().map(|world| {
            let result = eval(&case.network.result, world).dense();
            let loss = eval(&case.loss(), world).dense().at(0, 0);
            let grads = grads.iter().flatten().map(|grad| eval(grad, world).dense());
            (result, loss, grads.collect())
        });
        Truth { found: found.collect(), worlds }
    }

    fn check(&self, case: &Case, plan: &Plan, what: &str) {
        plan.check().unwrap_or_else(|e| panic!("{what}: {e}\n{plan}"));
        let what = format!("{}, {what}:\n{plan}", case.name);
        let outcomes = run(plan, &[&self.worlds[0], &self.worlds[1]]);
        for (outcome, (result, loss, grads)) in outcomes.iter().zip(&self.found) {
            assert_same(&outcome.result, result, &format!("result of {what}"));
            assert!((outcome.loss.unwrap() - loss).abs() < 1e-9, "loss of {what}");
            assert_eq!(outcome.grads.len(), grads.len(), "{what}");
            for (at, grad) in grads.iter().enumerate() {
                let name = &plan.params[at].name;
                assert_same(&outcome.grads[&at], grad, &format!("gradient of {name} in {what}"));
            }
        }
    }
}

fn settings() -> Vec<Settings> {
    let half = Settings { precision: Precision::Bf16, ..Settings::default() };
    let batches = Settings { batches: true, ..Settings::default() };
    let mut all = vec![Settings::default(), half, batches];
    for rules in [RuleSet::All, RuleSet::Sensei] {
        all.push(Settings { rules, without: vec!["all".to_owned()], ..Settings::default() });
    }
    all.push(Settings { rules: RuleSet::Sensei, ..Settings::default() });
    for saving in SAVINGS {
        all.push(Settings { without: vec![(*saving).to_owned()], ..Settings::default() });
    }
    all
}

fn planned(case: &Case, sizes: &Sizes, settings: &Settings) -> Chosen {
    choose(&case.network, sizes, &Analytic::default(), settings)
        .unwrap_or_else(|e| panic!("{}: {e}", case.name))
}

/// Sizes that make other things cheap than those of the small worlds do.
fn imagined(case: &Case, nodes: usize, degree: usize) -> Sizes {
    let mut sizes = Sizes::whole(case.levels, nodes, nodes * degree);
    sizes.graphs = 3;
    sizes.feature_entries = if case.sparse { nodes } else { 0 };
    sizes
}

#[test]
fn plans_compute_what_their_formulas_say() {
    for case in nets::all() {
        for nested in [false, true] {
            let truth = Truth::of(&case, nested);
            // A whole graph is levels of one size, and some networks have thousands of candidates:
            // a few settings are enough.
            let few = if nested && case.name != "tagcn" { usize::MAX } else { 4 };
            for settings in settings().into_iter().take(few) {
                let chosen = planned(&case, &truth.worlds[0].sizes(), &settings);
                truth.check(&case, &chosen.plan, &format!("{settings:?}"));
            }
        }
    }
}

#[test]
fn plans_for_other_sizes_compute_the_same() {
    for case in nets::all() {
        let truth = Truth::of(&case, true);
        for (nodes, degree) in [(100_000, 2), (1000, 500), (10_000_000, 30)] {
            let sizes = imagined(&case, nodes, degree);
            let chosen = planned(&case, &sizes, &Settings::default());
            truth.check(&case, &chosen.plan, &format!("{nodes} nodes, {degree} each"));
        }
    }
}

#[test]
fn every_candidate_computes_the_same() {
    for case in nets::all() {
        let truth = Truth::of(&case, true);
        let sizes = truth.worlds[0].sizes();
        let settings = Settings::default();
        let chosen = planned(&case, &sizes, &settings);
        for (layer, candidates) in chosen.layers.iter().enumerate() {
            assert_eq!(candidates.enumerated, candidates.all.len());
            let kept = candidates.kept();
            for index in kept.iter().copied().step_by(kept.len().div_ceil(10)) {
                let plan = with_candidate(
                    (&case.network, &chosen),
                    (layer, index),
                    (&sizes, &Analytic::default()),
                    &settings,
                );
                let formula = &candidates.all[index].formula;
                truth.check(&case, &plan.unwrap(), &format!("layer {layer} as {formula}"));
            }
        }
        let costs = (&sizes, &Analytic::default() as &dyn lacis_plan::cost::Costs);
        let missing = with_candidate((&case.network, &chosen), (0, 9999), costs, &settings);
        assert!(missing.is_err());
    }
}

#[test]
fn the_same_inputs_give_the_same_plan_and_it_survives_json() {
    for case in nets::all() {
        let sizes = imagined(&case, 10_000, 10);
        let plan = planned(&case, &sizes, &Settings::default()).plan;
        let again = planned(&case, &sizes, &Settings::default()).plan;
        assert_eq!(plan, again, "{}", case.name);
        assert_eq!(plan.id(), again.id());
        let text = serde_json::to_string(&plan).unwrap();
        let back: Plan = serde_json::from_str(&text).unwrap();
        assert_eq!(back, plan, "{}", case.name);
        assert_eq!(back.id(), plan.id());
    }
}

/// A plan that was kept before products could do more: it loads, and checkpoints know it by the
/// same name.
#[test]
fn plans_of_earlier_versions_keep_their_names() {
    let ending = r#"{"accumulate":false,"bias":false,"function":"Identity"}"#;
    let value =
        |shape: &str, place: &str| format!(r#"{{"shape":{shape},"place":{place},"formula":""}}"#);
    let values = [
        value(r#"[{"Nodes":0},{"Width":5}]"#, r#""Features""#),
        value(r#"[{"Width":5},{"Width":3}]"#, r#"{"Param":0}"#),
        value(r#"[{"Nodes":0},{"Width":3}]"#, r#"{"Slot":0}"#),
    ];
    let kept = format!(
        r#"{{"values":[{}],"steps":[{{"operator":{{"Gemm":{{"form":"Nn","ending":{ending}}}}},
            "inputs":[0,1],"outputs":[2],"phase":"Forward","layer":null,"formula":""}}],
            "slots":1,"matrices":0,"params":[{{"name":"W","shape":[5,3]}}],"result":2,
            "formula":"","savings":[]}}"#,
        values.join(",")
    );
    let plan: Plan = serde_json::from_str(&kept).unwrap();
    plan.check().unwrap();
    let then = "Gemm { form: Nn, ending: Ending { accumulate: false, bias: false, \
                function: Identity } } [0, 1] [2];";
    let name = format!("{:08x}", xxhash_rust::xxh3::xxh3_64(then.as_bytes()) as u32);
    assert_eq!(plan.id(), name);
    let mut gated = plan;
    if let Operator::Gemm { ending, .. } = &mut gated.steps[0].operator {
        ending.gate = Some(Function::Relu);
    }
    assert_ne!(gated.id(), name);
}

#[test]
fn inference_needs_no_backward_pass() {
    for case in nets::all() {
        let truth = Truth::of(&case, true);
        let network = Network { loss: None, ..case.network.clone() };
        let sizes = truth.worlds[0].sizes();
        let chosen = choose(&network, &sizes, &Analytic::default(), &Settings::default()).unwrap();
        chosen.plan.check().unwrap();
        let early = |phase| matches!(phase, Phase::Once | Phase::Forward);
        assert!(chosen.plan.steps.iter().all(|step| early(step.phase)), "{}", case.name);
        let outcomes = run(&chosen.plan, &[&truth.worlds[0], &truth.worlds[1]]);
        for (outcome, (result, _, _)) in outcomes.iter().zip(&truth.found) {
            assert_same(&outcome.result, result, case.name);
            assert!(outcome.loss.is_none() && outcome.grads.is_empty());
        }
    }
}

/// Functions of functions, biases of functions: what no single pass over elements computes.
#[test]
fn passes_over_elements_take_only_what_fits() {
    let (x, w, b) = (features(nets::WIDTH), param("W", nets::WIDTH, 3), param("b", 1, 3));
    let (relu, tanh, elu) = (Activation::Relu, Activation::Tanh, Activation::Elu(-0.5));
    let y = || &x * &w;
    let results = [
        y().map(relu).map(tanh),
        y().map(tanh).biased(&b),
        y().biased(&b).biased(&b),
        y().map(tanh).biased(&b).map(relu).dropout(0.5, 1).dropout(0.25, 2),
        y().scaled(0.5).biased(&b).map(elu).scaled(2.0).map(tanh).scaled(3.0).dropout(0.5, 1),
        (y().map(relu) + y().map(tanh).scaled(0.5)).biased(&b),
        (y().scaled(0.25) + y().map(tanh)).map(relu),
        y().dropout(0.5, 1).map(tanh).dropout(0.5, 2).map(relu).biased(&b),
        y().map(tanh).in_layer(3).map(relu).in_layer(4).biased(&b),
        x.map(relu) * &w,
        x.dropout(0.5, 7).map(relu) * &w,
        (&x * &(&w * &(w.t() * &w))).map(relu),
        (&(y().t() * y()).t() * &w.t()).t(),
        (y().t().scaled(2.0) * adjacency(Graph::WEIGHTED, 0).t()).t(),
    ];
    for result in results {
        result.check().unwrap();
        let all = Expr::sorted(std::slice::from_ref(&result));
        let params = all.iter().filter(|e| matches!(e.op(), Op::Param { .. })).cloned().collect();
        let network = Network { result, loss: Some(LossKind::Squares), params };
        let case = Case { name: "elements", network, levels: 2, sparse: false };
        let truth = Truth::of(&case, false);
        for settings in settings() {
            let chosen = planned(&case, &truth.worlds[0].sizes(), &settings);
            truth.check(&case, &chosen.plan, &format!("{settings:?}"));
        }
    }
}

fn small_plan() -> Plan {
    let case = &nets::all()[0];
    let sizes = imagined(case, 1000, 10);
    planned(case, &sizes, &Settings::default()).plan
}

#[test]
fn a_plan_whose_steps_are_swapped_is_found() {
    let plan = small_plan();
    let mut found = 0;
    for at in 0..plan.steps.len() {
        for other in at + 1..plan.steps.len() {
            let reads = |step: usize| &plan.steps[step].inputs;
            let depends = plan.steps[at]
                .outputs
                .iter()
                .any(|o| reads(other).iter().any(|&i| plan.base(i) == *o));
            if depends {
                let mut bad = plan.clone();
                bad.steps.swap(at, other);
                assert!(bad.check().is_err(), "steps {at} and {other} swapped\n{plan}");
                found += 1;
            }
        }
    }
    assert!(found > 5);
}

#[test]
fn a_plan_whose_slots_overlap_is_found() {
    let plan = small_plan();
    let read_later = |value: usize, after: usize| {
        plan.steps[after..].iter().any(|s| s.inputs.iter().any(|&i| plan.base(i) == value))
    };
    let mut found = 0;
    for (at, step) in plan.steps.iter().enumerate() {
        for &output in &step.outputs {
            // Everything that is computed before and read after this step must be left alone.
            let made = plan.steps[..at].iter().flat_map(|s| s.outputs.clone());
            for other in made.filter(|&v| read_later(v, at + 1)) {
                let (mut bad, slot) = (plan.clone(), plan.slot_of(other));
                if let (Place::Slot(own), Some(slot)) = (&mut bad.values[output].place, slot) {
                    *own = slot;
                    assert!(bad.check().is_err(), "value {output} over value {other}\n{plan}");
                    found += 1;
                }
            }
        }
    }
    assert!(found > 5);
}

#[test]
fn a_plan_that_makes_no_sense_is_found() {
    let plan = small_plan();
    let broken: [fn(&mut Plan); 6] = [
        |plan| plan.steps[0].inputs[0] = 9999,
        |plan| plan.result = 9999,
        |plan| plan.slots -= 1,
        |plan| plan.steps.retain(|step| !matches!(step.operator, Operator::Loss(_))),
        |plan| {
            let again = plan.steps[0].clone();
            plan.steps.push(again);
        },
        |plan| {
            let at = plan.values.len() - 1;
            plan.values[at].place = Place::View { of: at, from: 0 };
        },
    ];
    for (at, breaks) in broken.iter().enumerate() {
        let mut bad = plan.clone();
        breaks(&mut bad);
        assert!(bad.check().is_err(), "break {at}");
    }
}

/// A plan file may say that a product does what its inputs do not suffice for.
#[test]
fn a_product_with_too_few_inputs_is_found() {
    let plan = small_plan();
    let product = |step: &&mut Step| matches!(step.operator, Operator::Gemm { .. });
    let says: [fn(&mut Ending); 4] = [
        |ending| ending.plus = !ending.plus,
        |ending| ending.bias = !ending.bias,
        |ending| ending.gate = Some(Function::Relu),
        |ending| ending.accumulate = true,
    ];
    for says in says {
        let mut bad = plan.clone();
        let step = bad.steps.iter_mut().find(product).unwrap();
        if let Operator::Gemm { ending, .. } = &mut step.operator {
            says(ending);
        }
        assert!(bad.check().unwrap_err().to_string().contains("inputs, not"));
    }
    let mut bad = plan;
    let sparse = |step: &&mut Step| matches!(step.operator, Operator::Spmm { .. });
    bad.steps.iter_mut().find(sparse).unwrap().inputs.pop();
    assert!(bad.check().unwrap_err().to_string().contains("inputs, not"));
}

/// A plan file may ask a product for what no kernel does.
#[test]
fn a_product_that_contradicts_itself_is_found() {
    let plan = small_plan();
    let refused = |dense: bool, says: fn(&mut Ending), inputs: usize| {
        let mut bad = plan.clone();
        let of_kind = |step: &&mut Step| match step.operator {
            Operator::Gemm { form, .. } => dense && form == Form::Nn,
            Operator::Spmm { .. } => !dense,
            _ => false,
        };
        let step = bad.steps.iter_mut().find(of_kind).unwrap();
        step.inputs.extend(vec![step.inputs[1]; inputs]);
        match &mut step.operator {
            Operator::Gemm { ending, .. } | Operator::Spmm { ending, .. } => says(ending),
            _ => unreachable!("found above"),
        }
        bad.check().unwrap_err().to_string()
    };
    let both = |ending: &mut Ending| {
        (ending.accumulate, ending.gate) = (true, Some(Function::Relu));
    };
    assert!(refused(true, both, 1).contains("not both"));
    assert!(refused(false, |ending| ending.gate = Some(Function::Relu), 1).contains("dense rows"));
    assert!(refused(false, |ending| ending.plus = true, 0).contains("dense rows"));
}

/// A product cannot write into what it still reads.
#[test]
fn a_product_that_overwrites_its_factor_is_found() {
    let plan = small_plan();
    let mut found = 0;
    for step in plan.steps.iter().filter(|s| matches!(s.operator, Operator::Gemm { .. })) {
        for &input in &step.inputs[..2] {
            let mut bad = plan.clone();
            if let (Some(slot), Place::Slot(own)) =
                (plan.slot_of(input), &mut bad.values[step.outputs[0]].place)
            {
                *own = slot;
                assert!(bad.check().is_err(), "{}", step.formula);
                found += 1;
            }
        }
    }
    assert!(found > 1);
}

/// The values that are left of one hop's edges are gone before the next hop's are drawn.
#[test]
fn edges_are_dropped_one_hop_at_a_time() {
    let all = nets::all();
    let case = all.iter().find(|case| case.name == "appnp dropped").unwrap();
    let plan = planned(case, &imagined(case, 1000, 10), &Settings::default()).plan;
    let drops = |step: &Step| matches!(step.operator, Operator::EdgeDropout { .. });
    let pairs: Vec<&[Step]> = plan.steps.windows(2).filter(|pair| drops(&pair[0])).collect();
    assert!(pairs.len() > 2, "two hops, forward and back\n{plan}");
    assert!(pairs.iter().all(|pair| pair[1].inputs[0] == pair[0].outputs[0]), "{plan}");
}

/// Where nodes have few edges, attention keeps a number per head for its gradient, which goes over
/// the edges instead; anywhere the features' gradient takes their place.
#[test]
fn attention_keeps_less_where_edges_are_few() {
    let all = nets::all();
    let case = all.iter().find(|case| case.name == "gat").unwrap();
    let truth = Truth::of(case, false);
    let mut kept = Vec::new();
    for (degree, few) in [(3, true), (40, false)] {
        let sizes = imagined(case, 1000, degree);
        let plan = planned(case, &sizes, &Settings::default()).plan;
        truth.check(case, &plan, &format!("{degree} edges a node"));
        let is_grad = |step: &&Step| matches!(step.operator, Operator::AttentionGrad(_));
        let grads: Vec<&Step> = plan.steps.iter().filter(is_grad).collect();
        assert_eq!(grads.len(), 2);
        for grad in grads {
            assert_eq!(grad.looks_again(), few, "{degree} edges a node");
            assert_eq!(plan.slot_of(grad.inputs[1]), plan.slot_of(grad.outputs[0]), "in place");
        }
        kept.push(plan.slot_bytes(&sizes));
    }
    assert!(4 * kept[0] < 3 * kept[1], "{kept:?}");
}

#[test]
fn diagonals_and_matrices_take_no_more_than_they_need() {
    for case in nets::all() {
        for settings in settings().into_iter().skip(1).take(2) {
            let sizes = imagined(&case, 1_000_000, 10);
            let plan = planned(&case, &sizes, &settings).plan;
            let most = 1_000_000 * 16;
            assert!(plan.slot_lens(&sizes).iter().all(|&len| len <= most), "{}", case.name);
        }
    }
}

#[test]
fn rows_in_bf16_take_half_the_bytes_and_the_result_stays_f32() {
    let half = Settings { precision: Precision::Bf16, ..Settings::default() };
    for case in nets::all() {
        let sizes = imagined(&case, 100_000, 10);
        let (wide, narrow) =
            (planned(&case, &sizes, &Settings::default()), planned(&case, &sizes, &half));
        let plan = &narrow.plan;
        assert_eq!(plan.precision(), Precision::Bf16, "{}", case.name);
        assert!(!plan.values[plan.result].half, "{}", case.name);
        assert_ne!(plan.id(), wide.plan.id(), "{}", case.name);
        let shares = plan.slot_bytes(&sizes) as f64 / wide.plan.slot_bytes(&sizes) as f64;
        assert!(shares < 0.95, "{}: {shares}\n{plan}", case.name);
        for step in &plan.steps {
            let half = |value: &usize| plan.values[*value].half;
            match step.operator {
                Operator::Convert => assert_ne!(half(&step.inputs[0]), half(&step.outputs[0])),
                Operator::Update(_) => assert!(!half(&step.inputs[0]), "{}\n{plan}", case.name),
                Operator::Spmm { .. } => {
                    assert_eq!(half(&step.inputs[1]), half(&step.outputs[0]), "{plan}");
                }
                _ => {}
            }
        }
    }
}
