//! Every line of `--json` follows `docs/schema.json`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{lacis, parse_events, text};

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../docs/schema.json")).unwrap()
}

/// What does not fit: the parts of JSON Schema that `docs/schema.json` uses.
fn problems(value: &Value, schema: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(constant) = schema.get("const").filter(|constant| *constant != value) {
        found.push(format!("{at}: {value} is not {constant}"));
    }
    if let Some(Value::Array(all)) = schema.get("enum")
        && !all.contains(value)
    {
        found.push(format!("{at}: {value} is none of {all:?}"));
    }
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    let has = |kind: &&str| match *kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("the schema has a type '{other}'"),
    };
    if !types.is_empty() && !types.iter().any(has) {
        found.push(format!("{at}: {value} is no {types:?}"));
    }
    if let (Some(Value::Object(fields)), Value::Object(own)) = (schema.get("properties"), value) {
        let required = names(schema.get("required"));
        let missing = required.iter().filter(|name| !own.contains_key(**name));
        found.extend(missing.map(|name| format!("{at}: '{name}' is missing")));
        for (name, value) in own {
            match fields.get(name) {
                Some(schema) => problems(value, schema, &format!("{at}.{name}"), found),
                None => found.push(format!("{at}: '{name}' is not in the schema")),
            }
        }
        let ways: Vec<&Value> = schema["anyOf"].as_array().into_iter().flatten().collect();
        let has_all =
            |way: &&Value| names(way.get("required")).iter().all(|name| own.contains_key(*name));
        if !ways.is_empty() && !ways.iter().any(has_all) {
            found.push(format!("{at}: fits none of its forms"));
        }
    }
    if let (Some(items), Value::Array(own)) = (schema.get("items"), value) {
        own.iter().for_each(|item| problems(item, items, &format!("{at}[]"), found));
    }
}

fn names(list: Option<&Value>) -> Vec<&str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Checks all lines of an output, and gives the events that came.
fn checked(out: &str) -> BTreeSet<String> {
    let schema = schema();
    let lines = parse_events(out);
    assert_eq!(lines[0]["event"], "start", "{out}");
    let kinds = lines.iter().map(|line| {
        let kind = line["event"].as_str().unwrap();
        let own = &schema["$defs"][kind];
        assert!(own.is_object(), "no definition of '{kind}'");
        let mut found = Vec::new();
        problems(line, own, kind, &mut found);
        assert!(found.is_empty(), "{found:?}\n{line}");
        kind.to_owned()
    });
    kinds.collect()
}

#[test]
fn every_definition_is_listed_and_named_by_its_event() {
    let schema = schema();
    let listed: Vec<&str> =
        schema["oneOf"].as_array().unwrap().iter().map(|r| r["$ref"].as_str().unwrap()).collect();
    for (name, own) in schema["$defs"].as_object().unwrap() {
        assert!(listed.contains(&format!("#/$defs/{name}").as_str()), "{name}");
        assert_eq!(own["properties"]["event"]["const"], json!(name));
        assert!(names(own.get("required")).contains(&"event"), "{name}");
    }
    let mut found = Vec::new();
    let line = json!({ "event": "epoch", "epoch": "one", "loss": 1.0, "train": null, "extra": 0 });
    problems(&line, &schema["$defs"]["epoch"], "epoch", &mut found);
    assert_eq!(found.len(), 4, "missing val and ms, a word, a name too many: {found:?}");
}

#[test]
fn what_commands_print_follows_the_schema() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| text(&dir.path().join(name)).to_owned();
    let small = "sbm:n=80,e=300,classes=3,features=6,seed=1";
    let (run, csv, folder, page) = (place("run"), place("l.csv"), place("g"), place("p.html"));
    let commands: [&[&str]; 22] = [
        &["train", small, "--epochs", "3", "--out", &run],
        &["train", small, "--epochs", "2", "--runs", "2", "--no-save", "--eval-every", "0"],
        &["train", small, "--epochs", "4", "--runs", "2", "--no-save", "--approx", "adaptive"],
        &["bench", "approx", "--graph", small, "--k", "8", "--rounds", "1"],
        &["train", small, "--dry-run"],
        &["eval", &run],
        &["predict", &run, "-o", &csv, "--what", "probs"],
        &["explain", small, "--measure"],
        &["data", "info", "karate"],
        &["data", "info", "rmat:n=50,e=100"],
        &["data", "list"],
        &["data", "generate", "er:n=30,e=50", "-o", &folder],
        &["data", "validate", "karate"],
        &["doctor"],
        &["analyze", small],
        &["analyze", small, "--task", "link"],
        &["analyze", "motifs:graphs=9,seed=1", "--model", "gat", "--staleness", "2"],
        &["analyze", small, "--model", "mlp", "--workers", "1"],
        &["report", &run, "-o", &page],
        &["tune", "--list"],
        &["train", small, "--model", "gcnn"],
        &["train", "--epohcs", "3"],
    ];
    let mut seen = BTreeSet::new();
    for command in commands {
        let ran = lacis(&[command, &["--json"]].concat());
        let kinds = checked(&ran.out);
        let failed = kinds.contains("error");
        assert_eq!(ran.code, Some(if failed { 2 } else { 0 }), "{command:?}: {}", ran.err);
        seen.extend(kinds);
    }
    for kind in ["plan", "epoch", "run", "done", "eval", "written", "explain", "data", "error"] {
        assert!(seen.contains(kind), "{kind}: {seen:?}");
    }
}
