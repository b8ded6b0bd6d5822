//! [`lacis::tune`] and [`lacis::ops`]: short measurements, and files that cannot be trusted.

use std::time::Instant;

use lacis::data::{Job, Watch};
use lacis::kernels::Isa;
use lacis::kernels::profile::{Profile, TABLES, Why};
use lacis::machine::this_machine;
use lacis::ops::measure::{Contestant, check};
use lacis::ops::{Form, OPERATIONS, Setting, find};
use lacis::tune::file::{Found, load, save};
use lacis::tune::{Detail, Effort, curve, tune};
use lacis::{Csr, Error, Threads};

fn karate(threads: &Threads) -> Csr {
    let set = lacis::open("karate", &Job::quiet(threads)).unwrap();
    set.graph().adjacency().as_ref().clone()
}

fn glimpse() -> Effort {
    Effort { seconds: 0.3, detail: Detail::Glimpse, only: None }
}

#[test]
fn a_glimpse_measures_every_table() {
    let threads = Threads::new(2).unwrap();
    let begun = Instant::now();
    let profile = tune(&glimpse(), &Job::quiet(&threads)).unwrap();
    assert!(begun.elapsed().as_secs_f64() < 5.0, "{:?}", begun.elapsed());
    let section = profile.section().unwrap();
    assert_eq!((profile.sections.len(), section.threads), (1, 2));
    assert!(section.stream.unwrap().read_gbps > 0.0 && section.gather.len() > 4);
    assert!(profile.check(&this_machine()).is_ok());
    let tuned = |op: &str| find(op).is_ok_and(|op| op.tuned);
    for table in TABLES.iter().filter(|table| tuned(table.op)) {
        let samples = profile.samples(table.op);
        assert!(!samples.is_empty(), "{}", table.op);
        let choice = profile.choose(table.op, &samples[0].point);
        assert!(matches!(choice.why, Why::Measured { .. }), "{choice:?}");
        assert!(profile.predict(table.op, &samples[0].point) > 0.0);
    }
    assert!(OPERATIONS.iter().all(|op| TABLES.iter().any(|table| table.op == op.id)));
}

#[test]
fn a_stop_is_heard() {
    struct Impatient;
    impl Watch for Impatient {
        fn stopped(&self) -> bool {
            true
        }
    }
    let threads = Threads::one();
    let job = Job { threads: &threads, watch: &Impatient };
    assert!(matches!(tune(&glimpse(), &job), Err(Error::Interrupted)));
}

#[test]
fn every_operation_gives_what_the_reference_gives() {
    let threads = Threads::new(2).unwrap();
    let graph = karate(&threads);
    for op in OPERATIONS {
        for form in op.forms {
            for k in if op.wide { &[1, 16, 41][..] } else { &[0] } {
                let k = *k;
                let setting = Setting { graph: &graph, k, n: 0, form: *form, threads: &threads };
                let mut problem = (op.prepare)(&setting).unwrap();
                let sample = problem.sample().unwrap();
                assert!(!sample.rows.is_empty(), "{}", op.id);
                let before = problem.rows(&sample.rows);
                assert!(sample.check(&before).is_err(), "{}: right before it ran", op.id);
                for (place, name) in op.kernels().into_iter().enumerate() {
                    if !problem.accepts(place) {
                        continue;
                    }
                    for isa in Isa::available() {
                        check(problem.as_mut(), &sample, (place, name), isa).unwrap();
                    }
                }
                let volume = problem.volume();
                assert!(volume.bytes > 0.0 && volume.flops >= 0.0, "{}", op.id);
                if Contestant::Plain(Isa::best()).run(problem.as_mut()).unwrap() {
                    sample.check(&problem.rows(&sample.rows)).unwrap();
                }
            }
        }
    }
    assert!(find("spnm").err().unwrap().to_string().contains("spmm"));
}

/// A small directed graph with a loop, a hub, an empty row and columns that nobody names.
fn lopsided(threads: &Threads) -> Csr {
    let hub = (1..40).map(|j| (3, j));
    let edges: Vec<(u32, u32)> = hub.chain([(0, 3), (3, 3), (9, 3), (41, 0), (41, 9)]).collect();
    let graph = lacis::Graph::from_edges(43, &edges).unwrap();
    graph.adjacency().as_ref().clone().sorted(lacis::Repeats::Keep, threads)
}

#[test]
fn sparse_results_are_told_from_wrong_ones() {
    let threads = Threads::new(2).unwrap();
    let graph = lopsided(&threads);
    for id in ["spgemm", "transpose", "sort", "coalesce"] {
        let setting = |form| Setting { graph: &graph, k: 0, n: 0, form, threads: &threads };
        let mut problem = (find(id).unwrap().prepare)(&setting(Form::WEIGHTED)).unwrap();
        let sample = problem.sample().unwrap();
        problem.run(0, Isa::best()).unwrap();
        let right = problem.rows(&sample.rows);
        sample.check(&right).unwrap();
        // A missing entry, another column, another value, another order: each is noticed.
        let (row, _) = (0..right.n_rows()).map(|i| (i, right.at(i, 0))).max_by(by_length).unwrap();
        for mark in 0..right.n_cols() {
            let mut wrong = right.clone();
            wrong.row_mut(row)[mark] += 1e-3;
            assert!(sample.check(&wrong).is_err(), "{id}, mark {mark}");
        }
        // Other values make other marks.
        let mut plain = (find(id).unwrap().prepare)(&setting(Form::PLAIN)).unwrap();
        plain.run(0, Isa::best()).unwrap();
        assert!(sample.check(&plain.rows(&sample.rows)).is_err(), "{id}");
    }
    let wide = Form { dtype: lacis::DType::F64, ..Form::PLAIN };
    let setting = Setting { graph: &graph, k: 0, n: 0, form: wide, threads: &threads };
    assert!((find("sort").unwrap().prepare)(&setting).is_err());
}

fn by_length(a: &(usize, f64), b: &(usize, f64)) -> std::cmp::Ordering {
    a.1.total_cmp(&b.1)
}

#[test]
fn weights_are_as_asked() {
    let threads = Threads::one();
    let graph = karate(&threads);
    let matrix = |weighted| {
        let form = Form { weighted, ..Form::PLAIN };
        Setting { graph: &graph, k: 1, n: 0, form, threads: &threads }.matrix().unwrap()
    };
    assert!(matrix(true).values().is_some_and(|v| v.iter().any(|v| *v != 1.0)));
    assert!(matrix(false).values().is_none());
    let ones = graph.clone().with_values(Some(vec![1.0; graph.nnz()].into())).unwrap();
    let setting = Setting { graph: &ones, k: 1, n: 0, form: Form::PLAIN, threads: &threads };
    assert!(setting.matrix().unwrap().values().is_none());
}

#[test]
fn the_curve_compares_with_a_plain_loop() {
    let threads = Threads::one();
    let profile = Profile::unmeasured(this_machine());
    let point = curve::measure(&karate(&threads), 16, 3, &profile, &Job::quiet(&threads)).unwrap();
    assert!(point.speedup() > 0.0 && point.tuned.rounds == 3);
}

#[test]
fn profiles_are_kept_and_bad_ones_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("some/where/machine.json");
    let here = this_machine();
    assert_eq!(load(&path, &here), Found::Absent);

    let threads = Threads::one();
    let profile = tune(&glimpse(), &Job::quiet(&threads)).unwrap();
    save(&path, &profile).unwrap();
    assert_eq!(load(&path, &here), Found::Profile(Box::new(profile.clone())));
    // Another number of threads joins; nothing else is left in the folder.
    let mut two = profile.clone();
    two.sections[0].threads = 2;
    save(&path, &two).unwrap();
    let Found::Profile(both) = load(&path, &here) else { panic!("gone") };
    assert_eq!(both.sections.len(), 2);
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

    let text = std::fs::read_to_string(&path).unwrap();
    let unusable = |text: &str| {
        std::fs::write(&path, text).unwrap();
        match load(&path, &here) {
            Found::Unusable(why) => why,
            other => panic!("{other:?}"),
        }
    };
    assert!(unusable(&text[..text.len() / 2]).contains("is broken"));
    assert!(unusable("").contains("is broken"));
    assert!(unusable("[1, 2]").contains("machine.json"));
    let stepping = format!("\"stepping\": {}", here.stepping);
    assert!(unusable(&text.replace(&stepping, "\"stepping\": 99")).contains("was measured on"));
    let other = text.replace(&profile.tables, "0123456789abcdef");
    assert!(unusable(&other).contains("other kernels"));
    assert!(matches!(load(dir.path(), &here), Found::Unusable(_)));
    // A bad file is replaced by the next measurement.
    save(&path, &profile).unwrap();
    assert!(matches!(load(&path, &here), Found::Profile(_)));
}
