//! Tables and cards.

use serde_json::Value;

use super::chart::{escaped, number};

/// A column: its head, and whether it holds numbers.
pub type Column = (&'static str, bool);

/// Rows under heads; a row may be marked as the best one. A column of which nothing is known is
/// left out.
pub fn table(columns: &[Column], rows: &[(bool, Vec<String>)]) -> String {
    let says = |at: usize| rows.iter().any(|(_, cells)| !["", "–"].contains(&cells[at].as_str()));
    let shown: Vec<usize> = (0..columns.len()).filter(|at| rows.is_empty() || says(*at)).collect();
    let class = |numeric: bool| if numeric { " class=n" } else { "" };
    let heads: String = shown
        .iter()
        .map(|at| columns[*at])
        .map(|(head, numeric)| format!("<th{}>{}</th>", class(numeric), escaped(head)))
        .collect();
    let rows: String = rows
        .iter()
        .map(|(best, cells)| {
            let cells: String = shown
                .iter()
                .map(|&at| format!("<td{}>{}</td>", class(columns[at].1), cells[at]))
                .collect();
            format!("<tr{}>{cells}</tr>", if *best { " class=best" } else { "" })
        })
        .collect();
    let body = format!("<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>");
    format!("<div class=scroll><table>{body}</table></div>")
}

/// Large numbers with what they are; what is not known is left out.
pub fn cards(cards: &[(String, &str)]) -> String {
    let cards: String = cards
        .iter()
        .filter(|(value, _)| !["", "–"].contains(&value.as_str()))
        .map(|(value, name)| {
            // Words take more room than numbers.
            let class = if value.chars().count() > 12 { " class=words" } else { "" };
            let (value, name) = (escaped(value), escaped(name));
            format!("<div class=card><b{class}>{value}</b><span>{name}</span></div>")
        })
        .collect();
    format!("<div class=cards>{cards}</div>")
}

/// A number of a line, `–` where there is none.
pub fn value(of: &Value) -> String {
    match of {
        Value::Number(_) => number(of.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => escaped(text),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        _ => "–".to_owned(),
    }
}

/// The same with a unit.
pub fn with_unit(of: &Value, unit: &str) -> String {
    match of.as_f64() {
        Some(found) => format!("{} {unit}", number(found)),
        None => "–".to_owned(),
    }
}

/// A number, NaN where there is none.
pub fn float(of: &Value) -> f64 {
    of.as_f64().unwrap_or(f64::NAN)
}

/// A formula.
pub fn formula(of: &Value) -> String {
    format!("<span class=formula>{}</span>", escaped(of.as_str().unwrap_or_default()))
}
