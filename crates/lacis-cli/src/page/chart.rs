//! Charts as SVG text: no script, no network; a browser scales them and shows titles on hover.

use std::fmt::Write;

/// Width and height of a chart's own units.
const SIZE: [f64; 2] = [760.0, 290.0];
/// Room for labels: left, top, right, bottom.
const ROOM: [f64; 4] = [58.0, 26.0, 16.0, 38.0];
/// Points up to which each gets a dot with a title.
const DOTS: usize = 40;

/// A named line.
pub struct Series {
    pub name: String,
    pub points: Vec<[f64; 2]>,
}

/// How an axis reads.
#[derive(Clone, Copy)]
pub struct Axis {
    pub label: &'static str,
    pub log: bool,
}

/// Text that may hold anything, as HTML.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(letter),
        }
    }
    safe
}

/// A number with as many digits as help.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "–".to_owned();
    }
    let text = match size {
        0.0 => return "0".to_owned(),
        _ if size >= 1e15 => format!("{value:.1e}"),
        _ if size >= 1e9 => format!("{:.3}G", value / 1e9),
        _ if size >= 1e6 => format!("{:.3}M", value / 1e6),
        _ if size >= 1e4 => format!("{:.2}k", value / 1e3),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ if size >= 1e-3 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    };
    match text.find('.') {
        Some(_) if !text.contains('e') => {
            let (body, unit) = match text.char_indices().last() {
                Some((at, last)) if last.is_alphabetic() => text.split_at(at),
                _ => (text.as_str(), ""),
            };
            format!("{}{unit}", body.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// Where numbers are on an axis.
struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    log: bool,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>, [start, end]: [f64; 2], log: bool) -> Self {
        let usable = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
        let (mut from, mut to) =
            usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        if from > to {
            (from, to) = (if log { 1.0 } else { 0.0 }, 10.0);
        }
        if log {
            (from, to) = (10f64.powf(from.log10().floor()), 10f64.powf(to.log10().ceil()));
        }
        if from == to {
            (from, to) = if log { (from / 10.0, to * 10.0) } else { (from - 0.5, to + 0.5) };
        }
        Scale { from, to, start, end, log }
    }

    fn at(&self, value: f64) -> f64 {
        let share = match self.log {
            true => {
                let value = value.max(self.from);
                (value / self.from).log10() / (self.to / self.from).log10()
            }
            false => (value - self.from) / (self.to - self.from),
        };
        self.start + share * (self.end - self.start)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.to / self.from).log10().round() as i32;
            let every = (decades / 8).max(1);
            let first = self.from.log10().round() as i32;
            return (0..=decades).step_by(every as usize).map(|d| 10f64.powi(first + d)).collect();
        }
        let rough = (self.to - self.from) / 5.0;
        let unit = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * unit).into_iter().find(|s| *s >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.from / step).ceil();
        let mut ticks = Vec::new();
        let mut at = first * step;
        while at <= self.to + step * 1e-9 && ticks.len() < 12 {
            ticks.push(if at.abs() < step * 1e-9 { 0.0 } else { at });
            at += step;
        }
        ticks
    }
}

fn scales(series: &[Series], axes: [Axis; 2]) -> [Scale; 2] {
    let xs = series.iter().flat_map(|one| one.points.iter().map(|point| point[0]));
    let ys = series.iter().flat_map(|one| one.points.iter().map(|point| point[1]));
    [
        Scale::of(xs, [ROOM[0], SIZE[0] - ROOM[2]], axes[0].log),
        Scale::of(ys, [SIZE[1] - ROOM[3], ROOM[1]], axes[1].log),
    ]
}

/// Axes with their ticks and labels.
fn frame(svg: &mut String, [x, y]: [&Scale; 2], axes: [Axis; 2]) {
    let (left, right, top, bottom) = (x.start, x.end, y.end, y.start);
    for tick in y.ticks() {
        let at = y.at(tick);
        let text = number(tick);
        let _ = write!(
            svg,
            "<line class=grid x1={left:.1} x2={right:.1} y1={at:.1} y2={at:.1} />\
             <text x={:.1} y={:.1} text-anchor=end>{text}</text>",
            left - 6.0,
            at + 4.0
        );
    }
    for tick in x.ticks() {
        let _ = write!(
            svg,
            "<text x={:.1} y={:.1} text-anchor=middle>{}</text>",
            x.at(tick),
            bottom + 15.0,
            number(tick)
        );
    }
    let _ = write!(
        svg,
        "<path class=axis d='M{left:.1} {top:.1}V{bottom:.1}H{right:.1}' />\
         <text x={:.1} y={:.1} text-anchor=end>{}</text>\
         <text x=4 y=12 class=ink>{}</text>",
        right,
        bottom + 31.0,
        escaped(axes[0].label),
        escaped(axes[1].label),
    );
}

/// Names with their colours.
pub fn legend(names: &[&str]) -> String {
    if names.len() < 2 {
        return String::new();
    }
    let items = names.iter().enumerate().map(|(at, name)| {
        format!("<li><i style='background:var(--c{})'></i>{}</li>", at % 8, escaped(name))
    });
    format!("<ul class=legend>{}</ul>", items.collect::<String>())
}

/// Lines over a common axis.
pub fn lines(title: &str, series: &[Series], axes: [Axis; 2]) -> String {
    let [x, y] = scales(series, axes);
    let mut svg = String::new();
    frame(&mut svg, [&x, &y], axes);
    for (at, one) in series.iter().enumerate() {
        let mut path = String::new();
        let mut drawn = false;
        for [px, py] in &one.points {
            if !py.is_finite() || (axes[1].log && *py <= 0.0) {
                drawn = false;
                continue;
            }
            let letter = if drawn { 'L' } else { 'M' };
            let _ = write!(path, "{letter}{:.1} {:.1}", x.at(*px), y.at(*py));
            drawn = true;
        }
        let colour = at % 8;
        let _ = write!(
            svg,
            "<path class=curve style='stroke:var(--c{colour})' d='{path}'><title>{}</title></path>",
            escaped(&one.name)
        );
        if one.points.len() <= DOTS {
            dots(&mut svg, one, [&x, &y], colour);
        }
    }
    let names: Vec<&str> = series.iter().map(|one| one.name.as_str()).collect();
    figure(title, &legend(&names), &drawing(title, SIZE, &svg))
}

fn dots(svg: &mut String, one: &Series, [x, y]: [&Scale; 2], colour: usize) {
    for [px, py] in one.points.iter().filter(|point| point[1].is_finite()) {
        let _ = write!(
            svg,
            "<circle r=3 cx={:.1} cy={:.1} style='fill:var(--c{colour})'>\
             <title>{}: {} at {}</title></circle>",
            x.at(*px),
            y.at(*py),
            escaped(&one.name),
            number(*py),
            number(*px)
        );
    }
}

/// Named points: where they are, and what each is.
pub struct Cloud {
    pub name: String,
    pub dots: Vec<([f64; 2], String)>,
}

/// Points of several kinds over common axes, and a line that they are seen against.
fn clouds(title: &str, clouds: &[Cloud], axes: [Axis; 2], line: (&str, Vec<[f64; 2]>)) -> String {
    let (name, line) = line;
    let mut all = vec![Series { name: name.to_owned(), points: line.clone() }];
    all.extend(clouds.iter().map(|cloud| {
        let points = cloud.dots.iter().map(|(at, _)| *at).collect();
        Series { name: String::new(), points }
    }));
    let [x, y] = scales(&all, axes);
    let mut svg = String::new();
    frame(&mut svg, [&x, &y], axes);
    let path: Vec<String> =
        line.iter().map(|[a, b]| format!("{:.1} {:.1}", x.at(*a), y.at(*b))).collect();
    let _ = write!(
        svg,
        "<path class=roof d='M{}'><title>{}</title></path>",
        path.join("L"),
        escaped(name)
    );
    for (colour, cloud) in clouds.iter().enumerate() {
        for ([px, py], what) in &cloud.dots {
            let _ = write!(
                svg,
                "<circle class=dot r=3.6 cx={:.1} cy={:.1} style='fill:var(--c{})'>\
                 <title>{}</title></circle>",
                x.at(*px),
                y.at(*py),
                colour % 8,
                escaped(what)
            );
        }
    }
    let names: Vec<&str> = clouds.iter().map(|cloud| cloud.name.as_str()).collect();
    figure(title, &legend(&names), &drawing(title, SIZE, &svg))
}

/// Points below a roof of bandwidth and, where that is known, speed; both axes in powers of ten.
pub fn roofline(title: &str, points: &[Cloud], [gbps, gflops]: [f64; 2]) -> String {
    let axes = [
        Axis { label: "operations per byte", log: true },
        Axis { label: "billion operations per second", log: true },
    ];
    let intensities = || points.iter().flat_map(|cloud| cloud.dots.iter().map(|(at, _)| at[0]));
    let (least, most) = (intensities().fold(0.1, f64::min), intensities().fold(1.0, f64::max));
    let ridge = (gflops / gbps).clamp(least, most);
    let roof = [least, if ridge.is_finite() { ridge } else { most }, most]
        .map(|intensity| [intensity, (intensity * gbps).min(gflops)]);
    clouds(title, points, axes, ("the roof", roof.to_vec()))
}

/// Pairs of times against the line on which both are the same, in powers of ten.
pub fn pairs(title: &str, points: &[Cloud], labels: [&'static str; 2]) -> String {
    let both = || points.iter().flat_map(|cloud| cloud.dots.iter().flat_map(|(at, _)| *at));
    let usable = both().filter(|ms| ms.is_finite() && *ms > 0.0);
    let (low, high) = usable.fold((f64::INFINITY, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)));
    if low > high {
        return String::new();
    }
    // The same powers of ten on both axes.
    let corners = [low, high * 1.000_001].map(|ms| [ms, ms]);
    clouds(title, points, labels.map(|label| Axis { label, log: true }), ("equal", corners.into()))
}

/// Room for names beside a heat map.
const LABELS: f64 = 260.0;
/// Degrees by which long names of columns lean.
const LEAN: f64 = 24.0;

/// A name of at most so many letters.
fn cut(name: &str, most: usize) -> String {
    match name.chars().count() > most {
        true => name.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

/// A table of colours: the darker, the more.
pub fn heat(title: &str, (rows, cols): (&[String], &[String]), values: &[Vec<f64>]) -> String {
    // As wide as the longest name, up to a third of the picture.
    let letters = rows.iter().map(|row| row.chars().count()).max().unwrap_or(0);
    let left = (16.0 + 6.4 * letters as f64).clamp(80.0, LABELS);
    let high = 26.0;
    let wide = ((SIZE[0] - left - 10.0) / cols.len().max(1) as f64).min(110.0);
    // Names that are longer than columns are wide lean, and end where their columns begin.
    let letters = cols.iter().map(|col| col.chars().count()).max().unwrap_or(0) as f64;
    let lean = letters * 6.4 > wide;
    let top = if lean { 16.0 + letters.min(26.0) * 6.4 * LEAN.to_radians().sin() } else { 26.0 };
    let all = || values.iter().flatten().copied().filter(|v| v.is_finite() && *v > 0.0);
    let (low, most) = all().fold((f64::INFINITY, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)));
    let mut svg = String::new();
    for (at, col) in cols.iter().enumerate() {
        let (x, y) = (left + (at as f64 + 0.5) * wide, top - 8.0);
        let (short, whole) = (escaped(&cut(col, 26)), escaped(col));
        let place = match lean {
            true => format!("text-anchor=end transform='rotate({LEAN} {x:.1} {y:.1})'"),
            false => "text-anchor=middle".to_owned(),
        };
        let _ = write!(svg, "<text x={x:.1} y={y:.1} {place}>{short}<title>{whole}</title></text>");
    }
    for (r, row) in rows.iter().enumerate() {
        let y = top + r as f64 * high;
        let _ = write!(
            svg,
            "<text x={:.1} y={:.1} text-anchor=end class=ink>{}<title>{}</title></text>",
            left - 8.0,
            y + 17.0,
            escaped(&cut(row, (LABELS / 6.4) as usize - 3)),
            escaped(row)
        );
        for (c, value) in values[r].iter().enumerate().filter(|(_, value)| value.is_finite()) {
            let share = match most > low {
                true => (value / low).ln() / (most / low).ln(),
                false => 0.5,
            };
            let x = left + c as f64 * wide;
            let _ = write!(
                svg,
                "<rect x={:.1} y={:.1} width={:.1} height={:.1} rx=3 style='fill:color-mix(in \
                 srgb,var(--c0) {:.0}%,var(--ground))'><title>{}, {}: {}</title></rect>\
                 <text x={:.1} y={:.1} text-anchor=middle class=ink>{}</text>",
                x + 1.0,
                y + 1.0,
                wide - 2.0,
                high - 2.0,
                8.0 + 62.0 * share,
                escaped(row),
                escaped(&cols[c]),
                number(*value),
                x + wide / 2.0,
                y + 17.0,
                number(*value)
            );
        }
    }
    let height = top + rows.len() as f64 * high + 6.0;
    figure(title, "", &drawing(title, [SIZE[0], height], &svg))
}

/// A bar of a Gantt chart: row, start, end, colour and title.
pub struct Bar {
    pub row: usize,
    pub start: f64,
    pub end: f64,
    pub colour: usize,
    pub title: String,
}

/// Rows of a Gantt chart at most: a file may say anything.
const MOST_ROWS: usize = 1024;

/// Who does what when.
pub fn gantt(title: &str, (rows, unit): (usize, &str), bars: &[Bar]) -> String {
    let (left, high) = (74.0, 24.0);
    let rows = rows.min(MOST_ROWS);
    let most = bars.iter().map(|bar| bar.end).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let x = Scale { from: 0.0, to: most, start: left, end: SIZE[0] - 14.0, log: false };
    let bottom = rows as f64 * high + 6.0;
    let mut svg = String::new();
    for tick in x.ticks() {
        let at = x.at(tick);
        let _ = write!(
            svg,
            "<line class=grid x1={at:.1} x2={at:.1} y1=0 y2={bottom:.1} />\
             <text x={at:.1} y={:.1} text-anchor=middle>{} {unit}</text>",
            bottom + 14.0,
            number(tick)
        );
    }
    for row in 0..rows {
        let y = row as f64 * high + 16.0;
        let _ = write!(svg, "<text x=0 y={y:.1} class=ink>worker {row}</text>");
    }
    for bar in bars.iter().filter(|bar| bar.row < rows) {
        let (from, to) = (x.at(bar.start), x.at(bar.end));
        let _ = write!(
            svg,
            "<rect x={from:.2} y={:.1} width={:.2} height={:.1} rx=2 style='fill:var(--c{})'>\
             <title>{}</title></rect>",
            bar.row as f64 * high + 2.0,
            (to - from - 0.6).max(0.4),
            high - 5.0,
            bar.colour % 8,
            escaped(&bar.title)
        );
    }
    figure(title, "", &drawing(title, [SIZE[0], bottom + 20.0], &svg))
}

/// Bars beside names, one or two values each, the first predicted, the second measured.
pub fn bars(title: &str, rows: &[(String, Vec<f64>)], unit: &str) -> String {
    let all = rows.iter().flat_map(|(_, values)| values.iter().copied());
    let most = all.filter(|v| v.is_finite()).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let body: String = rows
        .iter()
        .map(|(name, values)| {
            let tracks: String = values
                .iter()
                .enumerate()
                .filter(|(_, value)| value.is_finite())
                .map(|(at, value)| {
                    let class = if at > 0 { " class=second" } else { "" };
                    let width = 100.0 * value / most;
                    format!("<i{class} style='width:{width:.2}%;background:var(--c{at})'></i>")
                })
                .collect();
            let texts: Vec<String> =
                values.iter().filter(|v| v.is_finite()).map(|v| number(*v)).collect();
            format!(
                "<span class=name title=\"{0}\">{0}</span><span class=track>{tracks}</span>\
                 <span class=value>{1} {unit}</span>",
                escaped(name),
                texts.join(" / ")
            )
        })
        .collect();
    let two = rows.iter().any(|(_, values)| values.len() > 1);
    let names = if two { legend(&["predicted", "measured"]) } else { String::new() };
    figure(title, &names, &format!("<div class=bars role=img>{body}</div>"))
}

/// A drawing in its own units.
pub fn drawing(title: &str, [width, height]: [f64; 2], body: &str) -> String {
    format!(
        "<svg class=wide viewBox='0 0 {width:.0} {height:.0}' role=img aria-label=\"{}\">\
         {body}</svg>",
        escaped(title)
    )
}

/// Something to look at, with its caption.
pub fn figure(title: &str, legend: &str, body: &str) -> String {
    format!("<figure><figcaption>{}</figcaption>{legend}{body}</figure>", escaped(title))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_right() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (12.0, "12"),
            (123.4, "123"),
            (20_000.0, "20k"),
            (2.5e6, "2.5M"),
            (f64::NAN, "–"),
            (1e-6, "1.0e-6"),
            (100.0, "100"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn text_cannot_leave_its_place() {
        assert_eq!(escaped("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }

    #[test]
    fn ticks_cover_an_axis() {
        let linear = Scale::of([0.0, 7.3].into_iter(), [0.0, 100.0], false);
        assert_eq!(linear.ticks(), [0.0, 2.0, 4.0, 6.0]);
        let log = Scale::of([0.02, 300.0].into_iter(), [0.0, 100.0], true);
        assert_eq!(log.ticks().len(), 6);
        let point = Scale::of([3.0].into_iter(), [0.0, 100.0], false);
        assert!((point.at(3.0) - 50.0).abs() < 1e-9);
        assert!(Scale::of(std::iter::empty(), [0.0, 1.0], true).ticks().len() > 1);
    }
}
