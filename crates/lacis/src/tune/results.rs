//! From the results of `lacis bench ops` to a [`Profile`].

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lacis_core::{Error, Place, Result};
use lacis_kernels::Isa;
use lacis_kernels::profile::{Machine, Point, Profile, Sample, Section, tables_version};
use serde_json::Value;

use crate::machine::this_machine;
use crate::ops::find;

/// Reads a record, or lines of JSON. Lines that time no kernel of ours are passed over, and so are
/// problems that a [`Point`] cannot tell from others: values with zeros, indices in some order.
///
/// # Errors
/// When it is not readable, no JSON, or of another machine or other kernels; and when it does not
/// say of which machine it is.
pub fn read(path: &Path) -> Result<Profile> {
    let text = fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
    let lines = match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(mut record)) if record.contains_key("lines") => {
            let lines = record.remove("lines").and_then(|lines| lines.as_array().cloned());
            std::iter::once(Value::Object(record)).chain(lines.unwrap_or_default()).collect()
        }
        _ => lines_of(path, &text)?,
    };
    let here = this_machine();
    let mut known = false;
    let mut profile = Profile::unmeasured(here.clone());
    for line in &lines {
        known |= says_origin(path, line, &here)?;
        if take(line, &mut profile).is_some() && !known {
            let problem = "does not say on which machine it was measured, before its times; what \
                           `lacis bench ops` prints with --json or writes with -o does";
            return Err(Error::file(path, problem));
        }
    }
    Ok(profile)
}

fn lines_of(path: &Path, text: &str) -> Result<Vec<Value>> {
    let parse = |(at, line): (usize, &str)| {
        let bad = |error| Error::file_at(path, Place::Line(at as u64 + 1), format!("{error}"));
        serde_json::from_str(line).map_err(bad)
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

/// Whether a line says where lines after it were measured; it must have been here, and with the
/// kernels that there are.
fn says_origin(path: &Path, line: &Value, here: &Machine) -> Result<bool> {
    if line["tables"].as_str().is_some_and(|tables| tables != tables_version()) {
        return Err(Error::file(path, "was measured with other kernels than this version has"));
    }
    match &line["cpu"] {
        Value::Null => Ok(false),
        cpu => match serde_json::from_value::<Machine>(cpu.clone()) {
            Ok(machine) if machine == *here => Ok(true),
            _ => Err(Error::file(path, "was measured on another machine")),
        },
    }
}

/// Whether a [`Point`] says all that a line's time depends on.
fn is_plain(line: &Value) -> bool {
    let dense = line["sparsity"].as_f64().is_none_or(|zeros| zeros == 0.0);
    dense && line["index"].as_str().is_none_or(|order| order == "uniform")
}

/// Whether an operation has a kernel of this name; files may name others.
fn is_kernel(op: &str, name: &str) -> bool {
    find(op).is_ok_and(|op| op.kernels().contains(&name))
}

/// Adds the time of one kernel on one problem.
fn take(line: &Value, profile: &mut Profile) -> Option<()> {
    let text = |key: &str| line[key].as_str();
    if text("event")? != "op" || text("engine")? != "lacis" || !is_plain(line) {
        return None;
    }
    let point: Point = serde_json::from_value(line["point"].clone()).ok()?;
    let ns = line["ms"].as_f64()? * 1e6 / point.units as f64;
    let (op, name, isa) = (text("op")?, text("kernel")?, text("isa")?);
    if !(is_kernel(op, name) && Isa::named(isa).is_some() && ns.is_finite() && ns > 0.0) {
        return None;
    }
    let kernel = format!("{name}/{isa}");
    let threads = line["threads"].as_u64()? as usize;
    if !profile.sections.iter().any(|section| section.threads == threads) {
        profile.add(Section { threads, ..Section::default() });
    }
    let section = profile.sections.iter_mut().find(|section| section.threads == threads)?;
    let samples = section.ops.entry(op.to_owned()).or_default();
    match samples.iter_mut().find(|sample| sample.point == point) {
        Some(sample) => {
            sample.ns.insert(kernel, ns);
        }
        None => samples.push(Sample { point, ns: BTreeMap::from([(kernel, ns)]) }),
    }
    Some(())
}

/// Adds samples to what a profile knows, and says how many were taken. Nothing that is known goes;
/// and since a choice is among the kernels of the nearest sample, one that knows fewer kernels than
/// all that are there would hide kernels: it is left out.
pub fn merge(into: &mut Profile, from: Profile) -> usize {
    let mut taken = 0;
    for section in from.sections {
        let threads = section.threads;
        for (op, samples) in section.ops {
            let known = into.sections.iter().filter_map(|section| section.ops.get(&op)).flatten();
            let least = known.map(|sample| sample.ns.len()).min().unwrap_or(0);
            let place = place_of(into, threads);
            for sample in samples {
                let there = place.ops.get_mut(&op).into_iter().flatten();
                match there.into_iter().find(|known| known.point == sample.point) {
                    Some(known) => known.ns.extend(sample.ns),
                    None if sample.ns.len() >= least => {
                        place.ops.entry(op.clone()).or_default().push(sample);
                    }
                    None => continue,
                }
                taken += 1;
            }
        }
    }
    into.sections
        .retain(|section| *section != Section { threads: section.threads, ..Section::default() });
    taken
}

/// The section of a number of threads.
fn place_of(profile: &mut Profile, threads: usize) -> &mut Section {
    let place = match profile.sections.binary_search_by_key(&threads, |section| section.threads) {
        Ok(place) => place,
        Err(place) => {
            profile.sections.insert(place, Section { threads, ..Section::default() });
            place
        }
    };
    &mut profile.sections[place]
}

#[cfg(test)]
mod tests {
    use lacis_core::DType;
    use serde_json::json;

    use super::*;

    fn line(k: usize, kernel: &str, ms: f64) -> Value {
        let point = Point::sparse([100, 100, 800], k, DType::F32);
        json!({ "event": "op", "engine": "lacis", "op": "spmm", "kernel": name(kernel),
                "isa": Isa::best().name(), "ms": ms, "threads": 2, "point": point,
                "sparsity": 0.0, "index": "uniform" })
    }

    /// `a` and `b` are the first kernels; others are none of ours.
    fn name(kernel: &str) -> &str {
        let at = ["a", "b"].iter().position(|name| *name == kernel);
        at.map_or(kernel, |at| find("spmm").unwrap().kernels()[at])
    }

    /// What a profile calls the first kernel.
    fn first() -> String {
        format!("{}/{}", name("a"), Isa::best().name())
    }

    fn head() -> Value {
        json!({ "event": "start", "cpu": this_machine(), "tables": tables_version() })
    }

    fn read_lines(name: &str, lines: &[Value]) -> Result<Profile> {
        let path = std::env::temp_dir().join(format!("lacis-{}-{name}", std::process::id()));
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&path, text).unwrap();
        let found = read(&path);
        fs::remove_file(&path).unwrap();
        found
    }

    #[test]
    fn results_of_elsewhere_are_refused() {
        assert_eq!(read_lines("own", &[head(), line(8, "a", 1.0)]).unwrap().sections.len(), 1);
        let mut other = head();
        other["cpu"]["family"] = json!(99);
        let refused =
            |name: &str, lines: &[Value]| read_lines(name, lines).unwrap_err().to_string();
        assert!(refused("other", &[other, line(8, "a", 1.0)]).contains("another machine"));
        let mut old = head();
        old["tables"] = json!("0");
        assert!(refused("old", &[old, line(8, "a", 1.0)]).contains("other kernels"));
        assert!(refused("nobody's", &[line(8, "a", 1.0)]).contains("on which machine"));
    }

    #[test]
    fn what_no_kernel_of_ours_did_is_left_out() {
        let mut op = line(8, "a", 1.0);
        op["op"] = json!("spmn");
        let mut isa = line(8, "a", 1.0);
        isa["isa"] = json!("avx9");
        let odd = [op, isa, line(8, "spmm.nobody.knows", 1.0)];
        let read = read_lines("odd", &[&[head()][..], &odd].concat()).unwrap();
        assert_eq!(read.samples("spmm").len() + read.samples("spmn").len(), 0);
    }

    #[test]
    fn problems_that_a_point_cannot_tell_apart_are_left_out() {
        let mut zeros = line(8, "a", 3.0);
        zeros["sparsity"] = json!(0.9);
        let mut sorted = line(8, "a", 2.0);
        sorted["index"] = json!("sorted");
        let read = read_lines("plain", &[head(), line(8, "a", 1.0), zeros, sorted]).unwrap();
        let samples = read.samples("spmm");
        assert_eq!(samples.len(), 1);
        assert!((samples[0].ns[&first()] - 1e6 / 800.0).abs() < 1e-9);
    }

    #[test]
    fn a_profile_never_knows_less() {
        let full = [head(), line(8, "a", 1.0), line(8, "b", 2.0), line(64, "a", 9.0)];
        let mut profile = read_lines("full", &full[..3]).unwrap();
        let one = read_lines("one", &[head(), line(8, "a", 4.0), line(64, "a", 9.0)]).unwrap();
        assert_eq!(merge(&mut profile, one), 1, "k = 64 knows one kernel of two");
        let samples = profile.samples("spmm");
        assert_eq!((samples.len(), samples[0].ns.len()), (1, 2));
        assert!((samples[0].ns[&first()] - 4e6 / 800.0).abs() < 1e-9);
        // With more threads than were ever measured with, it would decide.
        let mut wider = line(64, "a", 1.0);
        wider["threads"] = json!(4);
        let wider = read_lines("wider", &[head(), wider]).unwrap();
        assert_eq!(merge(&mut profile, wider.clone()), 0);
        assert_eq!(profile.sections.len(), 1);
        assert_eq!(merge(&mut Profile::unmeasured(this_machine()), wider), 1);
    }
}
