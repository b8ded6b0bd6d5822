//! A plan as a diagram: a box for each step, the first on top, and beside them a wire for each
//! result, from the step that makes it to those that read it.
//!
//! ```text
//!       ┌─┤ #1  A·X     ├  ▇▇▇ 0.4 ms
//!     ┌─┼▶┤ #2  #1·W1   ├  ▇ 0.1 ms       a lane is free again below the last who reads
//!     │ └▶┤ #3  …       ├  …
//! ```
//! Formulas name the steps whose results they hold, so that they stay short; the whole ones are
//! titles.

use std::fmt::Write;

use serde_json::Value;

use super::chart::{escaped, figure, legend, number};
use super::table::float;

/// Width of the drawing, and of what times take of it.
const WIDTH: f64 = 1046.0;
const TIMES: f64 = 250.0;
/// The longest bar of a time; the rest is for its number.
const BAR: f64 = 150.0;
/// Width of a letter of a formula, and about that of one of the line below.
const LETTER: f64 = 7.3;
const SMALL: f64 = 5.9;
/// Heights of a line, of what a box has beside its formula, of the space below, of a phase's name.
const LINE: f64 = 16.0;
const FRAME: f64 = 28.0;
const GAP: f64 = 10.0;
const HEADING: f64 = 34.0;
/// From one lane to the next, and what all lanes may take.
const PITCH: f64 = 9.0;
const LANES: f64 = 200.0;

/// A step where it is drawn.
struct Row<'a> {
    number: usize,
    whole: &'a str,
    /// The formula in lines, and what comes below it.
    lines: Vec<String>,
    about: String,
    phase: &'a str,
    from: Vec<usize>,
    /// Milliseconds: predicted, measured.
    times: [f64; 2],
    y: f64,
}

impl Row<'_> {
    fn height(&self) -> f64 {
        let arrows = 25.0 + 7.0 * self.from.len() as f64;
        (FRAME + LINE * self.lines.len() as f64).max(arrows)
    }

    /// Where its result leaves it, and where what it reads as `at`-th arrives.
    fn leaves_at(&self) -> f64 {
        self.y + self.height() - 9.0
    }

    fn arrives_at(&self, from: usize) -> f64 {
        let at = self.from.iter().position(|step| *step == from).unwrap_or(0) as f64;
        let room = self.height() - 26.0;
        self.y + 9.0 + at * (room / self.from.len() as f64).min(7.0)
    }
}

/// A result, and the lane it takes.
struct Wire {
    from: usize,
    to: Vec<usize>,
    lane: usize,
}

impl Wire {
    fn last(&self) -> usize {
        self.to.last().copied().unwrap_or(self.from)
    }
}

/// Boxes, wires and times of a plan's steps.
pub fn diagram(steps: &[&Value]) -> String {
    let mut rows = rows(steps);
    let wires = wires(&rows);
    let lanes = wires.iter().map(|wire| wire.lane + 1).max().unwrap_or(0);
    let pitch = (LANES / lanes.max(1) as f64).min(PITCH);
    let left = 18.0 + lanes as f64 * pitch;
    let room = ((WIDTH - TIMES - left - 60.0) / LETTER) as usize;
    let mut svg = String::new();
    let mut y = 0.0;
    for at in 0..rows.len() {
        if at == 0 || rows[at].phase != rows[at - 1].phase {
            heading(&mut svg, &rows[at..], (left, y));
            y += HEADING;
        }
        let row = &mut rows[at];
        row.lines = wrapped(&row.lines[0], room);
        row.y = y;
        y += row.height() + GAP;
    }
    for wire in &wires {
        draw_wire(&mut svg, wire, &rows, (left, left - 10.0 - wire.lane as f64 * pitch));
    }
    let most = rows.iter().flat_map(|row| row.times).filter(|ms| ms.is_finite());
    let most = most.fold(f64::MIN_POSITIVE, f64::max);
    for row in &rows {
        draw_box(&mut svg, row, left);
        draw_times(&mut svg, row, most);
    }
    let title = "Steps from first to last, and who reads what they make";
    let known = |which: usize| rows.iter().any(|row| row.times[which].is_finite());
    let both = known(0) && known(1);
    let names = if both { legend(&["predicted", "measured"]) } else { String::new() };
    let body = format!(
        "<svg class=plan viewBox='0 0 {WIDTH:.0} {y:.0}' role=img aria-label=\"{title}\">{svg}\
         </svg>"
    );
    figure(title, &names, &body)
}

fn rows<'a>(steps: &[&'a Value]) -> Vec<Row<'a>> {
    let text = |step: &'a Value, name: &str| step[name].as_str().unwrap_or_default();
    let formulas: Vec<&str> = steps.iter().map(|step| text(step, "formula")).collect();
    let row = |(at, step): (usize, &&'a Value)| {
        let from = step["from"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        let from: Vec<usize> = from.map(|step| step as usize).filter(|step| *step < at).collect();
        let layer = step["layer"].as_u64().map(|layer| format!("layer {}", layer + 1));
        let named = |name: &str| Some(text(step, name).to_owned()).filter(|word| !word.is_empty());
        // A kernel's name begins with its operator.
        let about = [named("kernel").or_else(|| named("operator")), layer];
        Row {
            number: at + 1,
            whole: formulas[at],
            lines: vec![shortened(&formulas, at, &from)],
            about: about.into_iter().flatten().collect::<Vec<_>>().join(" · "),
            phase: text(step, "phase"),
            from,
            times: [float(&step["predicted_ms"]), float(&step["measured_ms"])],
            y: 0.0,
        }
    };
    steps.iter().enumerate().map(row).collect()
}

/// A step's formula, in which results that it reads have the numbers of their steps.
fn shortened(formulas: &[&str], at: usize, from: &[usize]) -> String {
    let mut from: Vec<usize> = from.to_vec();
    from.sort_by_key(|step| std::cmp::Reverse(formulas[*step].len()));
    let mut text = formulas[at].to_owned();
    for step in from {
        text = replaced(&text, formulas[step], &format!("#{}", step + 1));
    }
    text
}

/// A text in which a formula has a name, where it stands alone.
fn replaced(text: &str, formula: &str, name: &str) -> String {
    if formula.chars().count() < 3 {
        return text.to_owned();
    }
    let mut depth = 0;
    // What is not held together by brackets is a part only between brackets or commas.
    let (mut sum, mut product) = (false, false);
    for letter in formula.chars() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        sum |= depth == 0 && letter == ' ';
        product |= depth == 0 && letter == '·';
    }
    let stands = |before: Option<char>, after: Option<char>| {
        let word = |letter: char| letter.is_alphanumeric() || "_'#".contains(letter);
        let ends = |letter: Option<char>| letter.is_none_or(|letter| "(),".contains(letter));
        let transposed = after == Some('ᵀ') && !product;
        match sum {
            true => ends(before) && ends(after),
            false => {
                !before.is_some_and(word)
                    && (transposed || !after.is_some_and(|letter| word(letter) || letter == '('))
            }
        }
    };
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(formula) {
        let (before, after) = (&rest[..at], &rest[at + formula.len()..]);
        let last = before.chars().next_back().or(done.chars().next_back());
        let alone = stands(last, after.chars().next());
        done.push_str(before);
        done.push_str(if alone { name } else { formula });
        rest = after;
    }
    done + rest
}

/// A formula in lines of at most so many letters, cut where a reader would.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest: Vec<char> = text.chars().collect();
    while rest.len() > most {
        let good = |at: &usize| [' ', '·', ','].contains(&rest[*at]);
        let cut = (most / 2..most).rev().find(good).map_or(most, |at| at + 1);
        let next = rest.split_off(cut);
        lines.push(rest.iter().collect::<String>().trim().to_owned());
        rest = next;
    }
    lines.push(rest.iter().collect::<String>().trim().to_owned());
    lines
}

/// A wire for each result that a later step reads. The short ones are next to the boxes.
fn wires(rows: &[Row<'_>]) -> Vec<Wire> {
    let wire = |from: usize| {
        let readers = rows.iter().enumerate().filter(|(_, row)| row.from.contains(&from));
        Wire { from, to: readers.map(|(at, _)| at).collect(), lane: 0 }
    };
    let mut wires: Vec<Wire> = (0..rows.len()).map(wire).filter(|w| !w.to.is_empty()).collect();
    wires.sort_by_key(|wire| (wire.last() - wire.from, wire.from));
    for at in 0..wires.len() {
        let (placed, rest) = wires.split_at_mut(at);
        let own = &mut rest[0];
        let free = |lane: &usize| {
            let mut same = placed.iter().filter(|other| other.lane == *lane);
            same.all(|other| other.last() <= own.from || own.last() <= other.from)
        };
        own.lane = (0..=at).find(free).unwrap_or(at);
    }
    wires
}

/// The name of a phase, which the rows begin with.
fn heading(svg: &mut String, rows: &[Row<'_>], (left, y): (f64, f64)) {
    let phase = rows[0].phase;
    let own = || rows.iter().take_while(|row| row.phase == phase);
    let sum = |which: usize| own().map(|row| row.times[which]).sum::<f64>();
    let (from, base) = (WIDTH - TIMES, y + 21.0);
    let _ =
        write!(svg, "<text x={left:.1} y={base:.1} class='ink phase'>{}</text>", escaped(phase));
    let times: Vec<String> =
        [sum(0), sum(1)].into_iter().filter(|ms| ms.is_finite()).map(number).collect();
    if !times.is_empty() {
        let _ = write!(svg, "<text x={from:.1} y={base:.1}>{} ms</text>", times.join(" / "));
    }
    if y > 0.0 {
        let _ = write!(svg, "<line class=grid x1=0 x2={WIDTH:.0} y1={y:.1} y2={y:.1} />");
    }
}

fn draw_wire(svg: &mut String, wire: &Wire, rows: &[Row<'_>], (left, x): (f64, f64)) {
    let (start, colour) = (rows[wire.from].leaves_at(), wire.lane % 7);
    let ends: Vec<f64> = wire.to.iter().map(|to| rows[*to].arrives_at(wire.from)).collect();
    let readers: Vec<String> = wire.to.iter().map(|to| format!("#{}", to + 1)).collect();
    let mut path = String::new();
    let mut dots = String::new();
    for (at, end) in ends.iter().enumerate() {
        // The last one is the corner; the others turn off.
        match at + 1 == ends.len() {
            true => {
                let _ = write!(
                    path,
                    "M{left:.1} {start:.1}H{:.1}Q{x:.1} {start:.1} {x:.1} {:.1}V{:.1}Q{x:.1} \
                     {end:.1} {:.1} {end:.1}H{:.1}",
                    x + 4.0,
                    start + 4.0,
                    end - 4.0,
                    x + 4.0,
                    left - 4.0
                );
            }
            false => {
                let _ = write!(path, "M{x:.1} {end:.1}H{:.1}", left - 4.0);
                let _ = write!(dots, "<circle r=2.4 cx={x:.1} cy={end:.1} />");
            }
        }
        let (tip, low, high) = (left - 0.5, end - 3.0, end + 3.0);
        let back = left - 5.5;
        let _ =
            write!(dots, "<path d='M{back:.1} {low:.1}L{tip:.1} {end:.1}L{back:.1} {high:.1}Z' />");
    }
    let _ = write!(
        svg,
        "<g class=wire style='--wire:var(--c{colour})'><title>#{} → {}</title><path d='{path}' />\
         <g>{dots}</g></g>",
        wire.from + 1,
        readers.join(", ")
    );
}

fn draw_box(svg: &mut String, row: &Row<'_>, left: f64) {
    let letters = row.lines.iter().map(|line| line.chars().count()).max().unwrap_or(0) as f64;
    let about = row.about.chars().count() as f64;
    let wide = (letters * LETTER).max(about * SMALL) + 54.0;
    let (y, high) = (row.y, row.height());
    let _ = write!(
        svg,
        "<g><title>{}</title><rect class=box x={left:.1} y={y:.1} width={wide:.1} \
         height={high:.1} rx=6 /><text x={:.1} y={:.1} text-anchor=end>#{}</text>",
        escaped(row.whole),
        left + 32.0,
        y + 18.0,
        row.number
    );
    for (at, line) in row.lines.iter().enumerate() {
        let base = y + 18.0 + LINE * at as f64;
        let (x, line) = (left + 42.0, escaped(line));
        let _ = write!(svg, "<text x={x:.1} y={base:.1} class='ink mono'>{line}</text>");
    }
    let (x, base) = (left + 42.0, y + 19.0 + LINE * row.lines.len() as f64);
    let _ = write!(svg, "<text x={x:.1} y={base:.1}>{}</text></g>", escaped(&row.about));
}

fn draw_times(svg: &mut String, row: &Row<'_>, most: f64) {
    let shown: Vec<(usize, f64)> =
        row.times.into_iter().enumerate().filter(|(_, ms)| ms.is_finite()).collect();
    let x = WIDTH - TIMES;
    let middle = row.y + row.height() / 2.0;
    let first = middle - 8.0 * shown.len() as f64;
    for (at, (which, ms)) in shown.into_iter().enumerate() {
        let y = first + 16.0 * at as f64;
        let wide = (BAR * ms / most).max(1.0);
        let _ = write!(
            svg,
            "<rect x={x:.1} y={:.1} width={wide:.1} height=10 rx=2 style='fill:var(--c{which})' />\
             <text x={:.1} y={:.1}>{} ms</text>",
            y + 3.0,
            x + wide + 7.0,
            y + 12.0,
            number(ms)
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(formula: &str, from: &[usize]) -> Value {
        json!({ "formula": formula, "operator": "each", "phase": "forward", "from": from,
                "layer": 0, "predicted_ms": 1.0, "measured_ms": null })
    }

    #[test]
    fn formulas_name_the_steps_that_they_read() {
        let formulas = ["A·X", "f(A·X)", "f(A·X)ᵀ·A·X + b", "A·X + b", "g(A·X + b)·(A·X + b·c)"];
        assert_eq!(shortened(&formulas, 1, &[0]), "f(#1)");
        assert_eq!(shortened(&formulas, 2, &[0, 1]), "#2ᵀ·#1 + b");
        assert_eq!(shortened(&formulas, 4, &[3]), "g(#4)·(A·X + b·c)");
        assert_eq!(replaced("A·X·W1 BA·X A·Xᵀ", "A·X", "#1"), "#1·W1 BA·X A·Xᵀ");
    }

    #[test]
    fn long_formulas_are_wrapped_and_whole() {
        let text = "attend(Ã, first, second, third)·weights";
        let lines = wrapped(text, 20);
        assert!(lines.iter().all(|line| line.chars().count() <= 20), "{lines:?}");
        assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
    }

    #[test]
    fn a_lane_is_free_below_the_last_reader() {
        let steps = [step("a", &[]), step("b", &[0]), step("c", &[1]), step("d", &[0, 2])];
        let all = rows(&steps.iter().collect::<Vec<_>>());
        let lanes: Vec<(usize, usize)> =
            wires(&all).iter().map(|wire| (wire.from, wire.lane)).collect();
        assert_eq!(lanes, [(1, 0), (2, 0), (0, 1)]);
    }

    #[test]
    fn every_reader_has_its_arrow() {
        let steps = [step("a", &[]), step("b", &[0]), step("c", &[0, 1])];
        let drawn = diagram(&steps.iter().collect::<Vec<_>>());
        assert_eq!(drawn.matches("class=wire").count(), 2);
        assert_eq!(drawn.matches('Z').count(), 3, "arrows");
        assert_eq!(drawn.matches("class=box").count(), 3);
    }
}
