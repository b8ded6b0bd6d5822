//! From the results of `lacis bench ops` to a [`Profile`].

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lacis_core::{Error, Place, Result};
use lacis_kernels::profile::{Machine, Point, Profile, Sample, Section};
use serde_json::Value;

use crate::machine::this_machine;

/// Reads a record, or lines of JSON. Lines that time no kernel of ours are passed over.
///
/// # Errors
/// When it is not readable, no JSON, or of another machine.
pub fn read(path: &Path) -> Result<Profile> {
    let text = fs::read_to_string(path).map_err(|error| Error::io("open", path, error))?;
    let here = this_machine();
    let lines = match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(mut record)) if record.contains_key("lines") => {
            let machine = record.remove("cpu").and_then(|cpu| serde_json::from_value(cpu).ok());
            if machine.is_some_and(|machine: Machine| machine != here) {
                return Err(Error::file(path, "was measured on another machine"));
            }
            let lines = record.remove("lines");
            lines.and_then(|lines| lines.as_array().cloned()).unwrap_or_default()
        }
        _ => lines_of(path, &text)?,
    };
    let mut profile = Profile::unmeasured(here);
    for line in &lines {
        take(line, &mut profile);
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

/// Adds the time of one kernel on one problem.
fn take(line: &Value, profile: &mut Profile) -> Option<()> {
    let text = |key: &str| line[key].as_str();
    if text("event")? != "op" || text("engine")? != "lacis" {
        return None;
    }
    let point: Point = serde_json::from_value(line["point"].clone()).ok()?;
    let ns = line["ms"].as_f64()? * 1e6 / point.units as f64;
    let kernel = format!("{}/{}", text("kernel")?, text("isa")?);
    if !(ns.is_finite() && ns > 0.0) {
        return None;
    }
    let threads = line["threads"].as_u64()? as usize;
    if !profile.sections.iter().any(|section| section.threads == threads) {
        profile.add(Section { threads, ..Section::default() });
    }
    let section = profile.sections.iter_mut().find(|section| section.threads == threads)?;
    let samples = section.ops.entry(text("op")?.to_owned()).or_default();
    match samples.iter_mut().find(|sample| sample.point == point) {
        Some(sample) => {
            sample.ns.insert(kernel, ns);
        }
        None => samples.push(Sample { point, ns: BTreeMap::from([(kernel, ns)]) }),
    }
    Some(())
}
