//! [`lacis_kernels::profile`]: what is chosen, from what, and what is refused.

use std::collections::BTreeMap;

use lacis_core::DType;
use lacis_core::reference::Reduce;
use lacis_kernels::profile::{
    Cache, Machine, Point, Profile, Sample, Section, Stream, TABLES, Why, table,
};
use lacis_kernels::{Isa, spmm};

fn machine() -> Machine {
    Machine {
        name: "test".into(),
        vendor: "maker".into(),
        family: 25,
        model: 17,
        stepping: 1,
        caches: vec![Cache { level: 1, bytes: 32 << 10 }, Cache { level: 2, bytes: 1 << 20 }],
        instruction_sets: Machine::instruction_sets(),
    }
}

fn point(n: usize, k: usize) -> Point {
    Point::sparse([n, n, 10 * n], k, DType::F32)
}

/// Times by kernel, on the best instruction set.
fn sample(point: Point, ns: &[(&str, f64)]) -> Sample {
    let isa = Isa::best().name();
    let ns = ns.iter().map(|(kernel, ns)| (format!("{kernel}/{isa}"), *ns));
    Sample { point, ns: ns.collect() }
}

fn profile(samples: Vec<Sample>) -> Profile {
    let mut profile = Profile::unmeasured(machine());
    let ops = BTreeMap::from([("spmm".to_owned(), samples)]);
    profile.add(Section { threads: 2, ops, ..Section::default() });
    profile
}

const FARTHER: &str = "spmm.csr.rows.v4.farther";
const FAR: &str = "spmm.csr.rows.v4.far";

#[test]
fn the_cheapest_nearby_is_chosen() {
    let narrow = sample(point(1000, 16), &[(FARTHER, 1.0), (FAR, 2.0)]);
    let wide = sample(point(1000, 256), &[(FARTHER, 20.0), (FAR, 10.0)]);
    let profile = profile(vec![narrow, wide]);
    assert_eq!(profile.choose("spmm", &point(1000, 16)).kernel, FARTHER);
    assert_eq!(profile.choose("spmm", &point(1000, 20)).kernel, FARTHER);
    assert_eq!(profile.choose("spmm", &point(1000, 200)).kernel, FAR);
    let choice = profile.choose("spmm", &point(1000, 256));
    let Why::Measured { ns, margin, samples } = choice.why else { panic!("{choice:?}") };
    assert!((ns - 10.0).abs() < 1e-3 && (margin - 2.0).abs() < 1e-3 && samples == 2, "{choice:?}");
    // Ten nanoseconds for each of 10,000 entries.
    let seconds = profile.predict("spmm", &point(1000, 256));
    assert!((seconds - 1e-4).abs() < 1e-6, "{seconds}");
}

#[test]
fn another_class_does_not_decide_where_the_own_is_known() {
    let sum = sample(point(1000, 64), &[(FARTHER, 1.0), (FAR, 2.0)]);
    let largest = Point { reduce: Some(Reduce::Max), ..point(1000, 512) };
    let max = sample(largest, &[(FARTHER, 9.0), (FAR, 3.0)]);
    let profile = profile(vec![sum, max]);
    let like = |reduce| Point { reduce: Some(reduce), ..point(1000, 64) };
    assert_eq!(profile.choose("spmm", &like(Reduce::Min)).kernel, FAR);
    assert_eq!(profile.choose("spmm", &like(Reduce::Mean)).kernel, FARTHER);
    // A class that nobody measured takes the nearest.
    let weighted = Point { weighted: true, ..point(1000, 64) };
    assert_eq!(profile.choose("spmm", &weighted).kernel, FARTHER);
}

#[test]
fn choices_are_in_the_table_and_repeat() {
    let unknown = sample(point(1000, 64), &[("spmm.of.yesterday", 0.1), (FAR, 2.0)]);
    let profiles = [Profile::unmeasured(machine()), profile(vec![unknown])];
    for profile in &profiles {
        for table in TABLES {
            let names = (table.kernels)();
            for k in [0, 1, 15, 16, 17, 100, 602, 5000] {
                for n in [0, 1, 1000, 10_000_000] {
                    let choice = profile.choose(table.op, &point(n, k));
                    assert!(names.contains(&choice.kernel), "{choice:?}");
                    assert_eq!(choice, profile.choose(table.op, &point(n, k)));
                    assert!(profile.predict(table.op, &point(n, k)).is_finite());
                }
            }
        }
    }
    assert_eq!(profiles[1].choose("spmm", &point(9, 9)).kernel, FAR);
    assert!(matches!(profiles[0].choose("spmm", &point(9, 9)).why, Why::Analytic));
    assert!(spmm::KERNELS.iter().all(|k| (table("spmm").unwrap().kernels)().contains(&k.name)));
}

#[test]
fn ties_go_to_the_first_name() {
    let equal = sample(point(1000, 64), &[(FARTHER, 1.0), (FAR, 1.0)]);
    assert_eq!(profile(vec![equal]).choose("spmm", &point(1000, 64)).kernel, FAR);
}

#[test]
fn the_most_threads_decide_whatever_the_order() {
    let mut profile = profile(vec![sample(point(1000, 64), &[(FARTHER, 1.0), (FAR, 2.0)])]);
    let one = vec![sample(point(1000, 64), &[(FARTHER, 2.0), (FAR, 1.0)])];
    let ops = BTreeMap::from([("spmm".to_owned(), one)]);
    profile.add(Section { threads: 1, ops, ..Section::default() });
    assert_eq!(profile.sections[0].threads, 1);
    assert_eq!(profile.choose("spmm", &point(1000, 64)).kernel, FARTHER);
    // Measured again: replaced, and what was not measured again stays.
    let stream = Stream { read_gbps: 9.0, write_gbps: 8.0, copy_gbps: 7.0, ..Stream::default() };
    profile.add(Section { threads: 2, stream: Some(stream), ..Section::default() });
    assert_eq!(profile.sections.len(), 2);
    assert_eq!(profile.section().unwrap().stream, Some(stream));
    assert_eq!(profile.samples("spmm").len(), 1);
}

#[test]
fn a_profile_is_the_same_after_being_text() {
    let point = Point { reduce: None, axis: 1, n: 7, ..point(1000, 64) };
    let profile = profile(vec![sample(point, &[(FARTHER, 1.25), (FAR, 2.0)])]);
    let text = serde_json::to_string_pretty(&profile).unwrap();
    assert!(text.contains("\"stepping\": 1") && text.contains(FAR), "{text}");
    assert_eq!(serde_json::from_str::<Profile>(&text).unwrap(), profile);
    assert!(profile.check(&machine()).is_ok());
}

#[test]
fn profiles_of_other_machines_and_kernels_are_refused() {
    let good = profile(vec![sample(point(1000, 64), &[(FARTHER, 1.0)])]);
    let refused = |change: &dyn Fn(&mut Profile)| {
        let mut profile = good.clone();
        change(&mut profile);
        profile.check(&machine()).unwrap_err().to_string()
    };
    assert!(refused(&|p| p.machine.stepping = 2).contains("25-17-2"));
    assert!(refused(&|p| p.machine.caches.clear()).contains("was measured on"));
    assert!(refused(&|p| p.tables = "0".into()).contains("other kernels"));
    assert!(refused(&|p| p.schema = 9).contains("form 9"));
    let zero = |p: &mut Profile| {
        p.sections[0].ops.get_mut("spmm").unwrap()[0].ns.insert(format!("{FARTHER}/x"), 0.0);
    };
    assert!(refused(&zero).contains("not above zero"));
}

#[test]
fn a_choice_takes_microseconds() {
    let widths = (1..400).map(|k| sample(point(1000 + k, k), &[(FARTHER, 1.0), (FAR, 2.0)]));
    let profile = profile(widths.collect());
    let begun = std::time::Instant::now();
    for k in 1..200 {
        profile.choose("spmm", &point(500, k));
    }
    let each = begun.elapsed().as_secs_f64() / 200.0;
    assert!(each < 2e-3, "{each} s");
}
