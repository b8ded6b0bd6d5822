//! The samples near a point, and the cheapest kernel there.

use lacis_core::reference::Reduce;

use super::tables::Table;
use super::{Choice, Point, Sample, Why};
use crate::isa::Isa;

/// How many samples a decision rests on.
const NEIGHBOURS: usize = 6;
/// What a factor of e in each coordinate counts for: the width decides most.
const SCALES: [f64; 4] = [1.0, 1.0, 0.5, 0.4];
/// How much cheaper than the analytic choice another must be: what short measurements are off by,
/// and more for each factor of e between the nearest one and the problem. What wins in the cache
/// does not win beyond it.
const BETTER: f64 = 1.05;
const FARTHER: f64 = 0.25;

/// The kernel with the least expected cost, or the default where that is about as cheap; `None`
/// where nothing was measured, or nothing that this machine and table still have.
pub(super) fn cheapest(
    samples: &[Sample],
    point: &Point,
    (table, default): (&Table, &str),
) -> Option<Choice> {
    let near = neighbours(samples, point);
    let (weight, nearest) = near.first()?;
    let better = BETTER + FARTHER * weight.recip().sqrt();
    let mut costs: Vec<(f64, Choice)> = Vec::new();
    for name in nearest.ns.keys() {
        let Some((kernel, isa)) = known(name, table) else { continue };
        let ns = expected(&near, name, point, table.effort);
        let why = Why::Measured { ns, margin: 1.0, samples: near.len() };
        costs.push((ns, Choice { kernel, isa, why }));
    }
    // Names are in order, and the sort keeps it: ties go to the first.
    costs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let least = costs.first()?.0;
    let close = costs.iter().position(|(ns, of)| of.kernel == default && *ns <= better * least);
    let (ns, mut choice) = costs.remove(close.unwrap_or(0));
    let next = costs.iter().find(|(_, other)| other.kernel != choice.kernel);
    let margin = next.map_or(1.0, |(next, _)| next / ns);
    choice.why = Why::Measured { ns, margin, samples: near.len() };
    Some(choice)
}

/// `spmm.csr.rows.v4/avx512` in the table and on this machine.
fn known(name: &str, table: &Table) -> Option<(&'static str, Isa)> {
    let (kernel, isa) = name.split_once('/')?;
    let kernel = (table.kernels)().into_iter().find(|known| *known == kernel)?;
    Some((kernel, Isa::named(isa)?))
}

/// The nearest samples of the nearest class with their weights, the nearest first.
fn neighbours<'a>(samples: &'a [Sample], point: &Point) -> Vec<(f64, &'a Sample)> {
    let class = samples.iter().map(|sample| mismatch(&sample.point, point)).min();
    let same = samples.iter().filter(|sample| Some(mismatch(&sample.point, point)) == class);
    let mut near: Vec<_> = same.map(|sample| (distance(&sample.point, point), sample)).collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0));
    near.truncate(NEIGHBOURS);
    near.iter_mut().for_each(|(distance, _)| *distance = 1.0 / (*distance + 1e-9));
    near
}

/// How unlike the classes of two problems are.
fn mismatch(a: &Point, b: &Point) -> u32 {
    let chooses = |p: &Point| matches!(p.reduce, Some(Reduce::Max | Reduce::Min));
    let adds = |p: &Point| matches!(p.reduce, Some(Reduce::Sum | Reduce::Mean));
    let reduce = (chooses(a), adds(a)) != (chooses(b), adds(b));
    8 * u32::from(a.dtype != b.dtype)
        + 4 * u32::from(a.axis != b.axis)
        + 2 * u32::from(reduce)
        + u32::from(a.weighted != b.weighted)
}

/// The square of the distance in logarithms.
fn distance(a: &Point, b: &Point) -> f64 {
    let place = |p: &Point| [p.k as f64, p.n as f64, p.bytes as f64, p.degree];
    let (a, b) = (place(a), place(b));
    (0..4).map(|i| (SCALES[i] * (a[i].max(0.1).ln() - b[i].max(0.1).ln())).powi(2)).sum()
}

/// Nanoseconds per unit of a kernel at a point.
fn expected(near: &[(f64, &Sample)], name: &str, point: &Point, effort: fn(&Point) -> f64) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for (weight, sample) in near {
        if let Some(ns) = sample.ns.get(name) {
            sum += weight * (ns / effort(&sample.point)).ln();
            weights += weight;
        }
    }
    (sum / weights).exp() * effort(point)
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    #[test]
    fn what_is_about_as_cheap_does_not_replace_the_default() {
        const DEFAULT: &str = "spmm.csr.rows.v4.far";
        const OTHER: &str = "spmm.csr.rows.v4.farther";
        let point = Point::sparse([1000, 1000, 8000], 64, lacis_core::DType::F32);
        let chosen = |other: f64| {
            let isa = Isa::best().name();
            let ns = [(DEFAULT, 1.0), (OTHER, other)].map(|(k, ns)| (format!("{k}/{isa}"), ns));
            let samples = [Sample { point, ns: ns.into_iter().collect() }];
            cheapest(&samples, &point, (table("spmm").unwrap(), DEFAULT)).unwrap()
        };
        assert_eq!(chosen(0.97).kernel, DEFAULT);
        assert_eq!(chosen(0.90).kernel, OTHER);
        let Why::Measured { ns, margin, .. } = chosen(0.97).why else { panic!("not measured") };
        assert!((ns - 1.0).abs() < 1e-6 && (margin - 0.97).abs() < 1e-6, "{ns} {margin}");
    }
}
