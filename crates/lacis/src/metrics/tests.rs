use lacis_core::{Chunk, Coo, Dense, Extent, Repeats, Rng, Tags};

use super::*;

#[test]
fn every_metric_of_the_table_has_a_name_that_parses() {
    for entry in METRICS {
        let name = entry.name.replace("@k", "@20");
        let metric: Metric = name.parse().unwrap();
        assert_eq!((metric.to_string(), metric.better()), (name, entry.better));
        assert_eq!(metric.is_for(Task::Link), entry.of_links.is_some());
        assert_eq!(metric.is_for(Task::Node), entry.of_items.is_some());
        assert_eq!(metric.is_for(Task::Graph), metric.is_for(Task::Node));
    }
    for text in ["", "hits", "hits@k", "hits@0", "hits@-1", "accuracy@5", "Accuracy", "auc"] {
        assert!(text.parse::<Metric>().is_err(), "{text}");
    }
    assert_eq!("graph".parse::<Task>().unwrap(), Task::Graph);
    assert!("nodes".parse::<Task>().is_err());
}

#[test]
fn a_default_fits_its_labels() {
    let of = |task, labels| Metric::default_for(task, labels).to_string();
    let classes = Labels::classes(vec![0, 1], vec![]).unwrap();
    assert_eq!(of(Task::Node, Some(&classes)), "accuracy");
    let numbers = Labels::Targets(Dense::zeros(2, 1));
    assert_eq!(of(Task::Graph, Some(&numbers)), "mae");
    assert_eq!(of(Task::Link, None), "roc-auc");
}

const N: usize = 40;

fn everything() -> Vec<u32> {
    (0..N as u32).collect()
}

fn value(name: &str, scores: &Dense, labels: &Labels) -> f64 {
    let items = everything();
    let scored = Scored::new(scores, labels, &items, ScoreRow::OfItem).unwrap();
    let metric: Metric = name.parse().unwrap();
    let [one, three] = [1, 3].map(|n| metric.of_items(&scored, &Threads::new(n).unwrap()).unwrap());
    assert!(one == three || one.is_nan() && three.is_nan());
    one
}

#[track_caller]
fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
}

fn class_scores() -> Dense {
    Dense::from_fn(N, 4, |a, b| ((a * 37 + b * 101 + a * b * 13) % 97) as f64 / 97.0 - 0.5)
}

fn labels_of(f: impl Fn(usize, usize) -> f64) -> [Labels; 2] {
    let dense = Dense::from_fn(N, 5, f);
    let mut coo = Coo::new(Tags::Values);
    let threads = Threads::one();
    let entries = |_, chunk: &mut Chunk| {
        for i in 0..N {
            for j in (0..5).filter(|&j| dense.at(i, j) != 0.0) {
                chunk.push_tagged(i as u32, j as u32, (dense.at(i, j) as f32).to_bits());
            }
        }
        Ok(())
    };
    coo.extend(vec![()], &threads, entries).unwrap();
    let extent = Extent { n_rows: Some(N), n_cols: Some(5) };
    let sparse = coo.into_csr(extent, Repeats::Keep, &threads).unwrap();
    [Labels::Targets(dense), Labels::Multi(sparse)]
}

fn label(a: usize, j: usize) -> f64 {
    let is = match j {
        0 | 1 => (a * (j + 2) + j).is_multiple_of(j + 2),
        4 => true,
        _ => (a * 5 + j * 3).is_multiple_of(4 + j),
    };
    f64::from(u8::from(is))
}

fn label_scores() -> Dense {
    Dense::from_fn(N, 5, |a, j| (((a * 17 + j * 23 + a * j) % 19) as f64 - 9.0) / 9.0)
}

/// The expected numbers of this file are scikit-learn 1.9's of the same arrays.
#[test]
fn classes_as_scikit_learn() {
    let classes = (0..N as i32).map(|i| (i * i * 7 + i) % 3).collect::<Vec<_>>();
    let labels = Labels::Classes { of: classes.into(), count: 4, names: vec![] };
    let scores = class_scores();
    close(value("accuracy", &scores, &labels), 0.175);
    close(value("f1-micro", &scores, &labels), 0.175);
    close(value("f1-macro", &scores, &labels), 0.1);
}

#[test]
fn two_classes_as_scikit_learn() {
    let classes = (0..N as i32).map(|i| i32::from(i * 13 % 7 < 3)).collect::<Vec<_>>();
    let labels = Labels::classes(classes, vec![]).unwrap();
    let one = Dense::from_fn(N, 1, |i, _| (i * 29 % 11) as f64 / 11.0);
    let two = Dense::from_fn(N, 2, |i, j| if j == 1 { (i * 29 % 11) as f64 / 11.0 } else { 0.0 });
    for scores in [one, two] {
        close(value("roc-auc", &scores, &labels), 0.455_729_166_666_666_63);
        close(value("ap", &scores, &labels), 0.374_442_634_145_447_2);
    }
}

#[test]
fn labels_as_scikit_learn_and_ogb() {
    let scores = label_scores();
    for labels in labels_of(label) {
        close(value("f1-micro", &scores, &labels), 0.494_117_647_058_823_55);
        close(value("f1-macro", &scores, &labels), 0.308_300_738_809_213_4);
        // Columns 0 and 4 are all positive, column 1 all negative: they do not count.
        close(value("roc-auc", &scores, &labels), 0.474_264_705_882_352_9);
        close(value("ap", &scores, &labels), 0.162_538_865_073_694_8);
    }
    let unknown =
        |a: usize, j: usize| if (a + j).is_multiple_of(6) { f64::NAN } else { label(a, j) };
    for labels in labels_of(unknown) {
        close(value("roc-auc", &scores, &labels), 0.473_214_285_714_285_7);
        close(value("ap", &scores, &labels), 0.184_796_085_286_172_3);
    }
}

#[test]
fn numbers_as_scikit_learn() {
    let labels = Labels::Targets(Dense::from_fn(N, 2, |a, j| ((a * 7 + j * 5) % 13) as f64 / 3.0));
    let said = Dense::from_fn(N, 2, |a, j| ((a * 5 + j * 11) % 17) as f64 / 4.0);
    close(value("mae", &said, &labels), 1.419_791_669_398_546_2);
    close(value("rmse", &said, &labels), 1.741_072_965_425_590_5);
    let part = Labels::Targets(Dense::from_fn(N, 2, |a, _| if a == 3 { 1.0 } else { f64::NAN }));
    close(value("mae", &said, &part), ((1.0f64 - 3.75).abs() + (1.0f64 - 2.25).abs()) / 2.0);
}

/// Of all pairs of a positive and a negative, those in order; of all thresholds, the sum.
#[test]
fn rankings_as_their_definitions_in_slow_loops() {
    for seed in 0..50u64 {
        let mut stream = Rng::new(seed, "test").stream(0);
        let n = 2 + stream.below(60);
        let levels = 1 + stream.below(30);
        let score = |x: usize| if x == 0 { -0.0 } else { x as f32 - 7.0 };
        let pairs: Vec<(bool, f32)> =
            (0..n).map(|_| (stream.below(3) == 0, score(stream.below(levels)))).collect();
        let kind = |is| pairs.iter().filter(move |pair| pair.0 == is).map(|pair| pair.1);
        let (p, q) = (kind(true).count() as f64, kind(false).count() as f64);
        let area = |a: f32, b: f32| {
            if a > b {
                1.0
            } else if a == b {
                0.5
            } else {
                0.0
            }
        };
        let sum: f64 = kind(true).map(|a| kind(false).map(|b| area(a, b)).sum::<f64>()).sum();
        let mut distinct: Vec<f32> = pairs.iter().map(|pair| pair.1).collect();
        distinct.sort_by(|a, b| b.total_cmp(a));
        distinct.dedup();
        let (mut ap, mut recall) = (0.0, 0.0);
        for t in distinct {
            let found = kind(true).filter(|&s| s >= t).count() as f64;
            let seen = pairs.iter().filter(|pair| pair.1 >= t).count() as f64;
            ap += (found / p - recall) * found / seen;
            recall = found / p;
        }
        match (ranking::roc_auc(pairs.clone()), ranking::average_precision(pairs.clone())) {
            (Some(found_area), Some(found_ap)) => {
                close(found_area, sum / p / q);
                close(found_ap, ap);
            }
            found => assert!(found == (None, None) && p * q == 0.0),
        }
    }
}

#[test]
fn links_as_ogb() {
    let positive = [3.0, 1.0, 2.0, 0.0];
    let negative = [2.5, 2.0, 2.0, -1.0, -0.0];
    let scores = LinkScores::shared(&positive, &negative);
    let of = |name: &str, scores: &LinkScores<'_>| name.parse::<Metric>().unwrap().of_links(scores);
    close(of("hits@1", &scores).unwrap(), 0.25);
    close(of("hits@2", &scores).unwrap(), 0.25);
    close(of("hits@4", &scores).unwrap(), 0.75);
    close(of("hits@5", &scores).unwrap(), 1.0);
    close(of("hits@6", &scores).unwrap(), 1.0);
    // Ranks: 1; 4; 2 and 4 for equal ones, so 3; 4 and 5.
    let mrr = (1.0 + 1.0 / 4.0 + 1.0 / 3.0 + 1.0 / 4.5) / 4.0;
    close(of("mrr", &scores).unwrap(), mrr);
    let rows = Dense::from_fn(4, 5, |_, j| f64::from(negative[j]));
    let of_each = LinkScores::of_each(&positive, &rows).unwrap();
    close(of("mrr", &of_each).unwrap(), mrr);
    // Pairs in order: 5 + 2 + (2 + 2 ties) + (1 + 1 tie), of 20.
    close(of("roc-auc", &scores).unwrap(), (5.0 + 2.0 + 3.0 + 1.5) / 20.0);
    assert!(of("accuracy", &scores).is_err());
    let broken = LinkScores::shared(&[f32::NAN], &negative);
    assert!(["hits@1", "mrr", "ap"].iter().all(|name| of(name, &broken).unwrap().is_nan()));
    let none = LinkScores::shared(&[], &negative);
    assert!(["hits@1", "mrr", "ap"].iter().all(|name| of(name, &none).unwrap().is_nan()));
    assert!(LinkScores::of_each(&positive, &Dense::zeros(4, 0)).is_err());
    assert!(LinkScores::of_each(&positive, &Dense::zeros(3, 2)).is_err());
}

#[test]
fn unknown_classes_ties_and_nan() {
    let labels = Labels::Classes { of: vec![0, -1, 1, 1, 0].into(), count: 2, names: vec![] };
    let rows = [[1.0, 1.0], [9.0, 0.0], [0.0, 2.0], [f64::NAN, f64::NAN], [f64::NAN, 1.0]];
    let scores = Dense::from_fn(5, 2, |i, j| rows[i][j]);
    let accuracy: Metric = "accuracy".parse().unwrap();
    let of = |items: &[u32]| {
        let scored = Scored::new(&scores, &labels, items, ScoreRow::OfItem).unwrap();
        accuracy.of_items(&scored, &Threads::one()).unwrap()
    };
    // Of equal scores the first; what is not known does not count; NaN is never right.
    close(of(&[0]), 1.0);
    close(of(&[0, 1, 2, 3]), 2.0 / 3.0);
    close(of(&[3]), 0.0);
    close(of(&[4]), 0.0);
    assert!(of(&[]).is_nan() && of(&[1]).is_nan());
}

#[test]
fn scores_may_be_those_of_the_list_only() {
    let labels = Labels::classes(vec![0, 1, 0, 1], vec![]).unwrap();
    let scores = Dense::from_fn(2, 2, |_, j| j as f64);
    let accuracy: Metric = "accuracy".parse().unwrap();
    let scored = Scored::new(&scores, &labels, &[3, 2], ScoreRow::InOrder).unwrap();
    close(accuracy.of_items(&scored, &Threads::one()).unwrap(), 0.5);
    assert!(Scored::new(&scores, &labels, &[3, 2], ScoreRow::OfItem).is_err());
    assert!(Scored::new(&scores, &labels, &[3], ScoreRow::InOrder).is_err());
    assert!(Scored::new(&scores, &labels, &[3, 4], ScoreRow::InOrder).is_err());
    let wide = Dense::zeros(2, 3);
    assert!(Scored::new(&wide, &labels, &[3, 2], ScoreRow::InOrder).is_err());
}

#[test]
fn metrics_that_do_not_fit_are_refused() {
    let [targets, _] = labels_of(label);
    let classes = Labels::classes(vec![0, 1, 2], vec![]).unwrap();
    let (five, three) = (Dense::zeros(N, 5), Dense::zeros(3, 3));
    let refused = |name: &str, scores: &Dense, labels: &Labels| {
        let scored = Scored::new(scores, labels, &[0, 1], ScoreRow::OfItem).unwrap();
        name.parse::<Metric>().unwrap().of_items(&scored, &Threads::one()).unwrap_err().to_string()
    };
    assert!(refused("accuracy", &five, &targets).contains("one class per item"));
    assert!(refused("mae", &three, &classes).contains("need numbers"));
    assert!(refused("roc-auc", &three, &classes).contains("not for 3 classes"));
    assert!(refused("hits@3", &three, &classes).contains("metric of links"));
}

#[test]
fn one_class_is_always_right() {
    let labels = Labels::classes(vec![0; N], vec!["only".to_owned()]).unwrap();
    let scores = Dense::from_fn(N, 1, |a, _| a as f64 - 20.0);
    close(value("accuracy", &scores, &labels), 1.0);
}
