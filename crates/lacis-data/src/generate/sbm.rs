//! The degree-corrected stochastic block model (Karrer and Newman 2011), with features.
//!
//! Nodes stand in slots, class by class, those with many neighbours first:
//!
//! ```text
//!   source: draw t < n takes slot t's turn, so nobody stays alone; later draws pick by degree
//!   target: the same class for a share `homophily` of the edges, else another, by size
//!   rank in a class = size · u^skew      so P(degree > d) falls like d^(-skew/(skew - 1))
//! ```
//! The number of edges inside classes and between them is exact: draws that repeat an edge are
//! made up for by further ones.

use std::collections::HashSet;

use lacis_core::threads::ranges;
use lacis_core::{
    CHUNK_ENTRIES, Coo, Csr, Dataset, Error, Graph, Labels, Repeats, Result, Rng, Stream, Tags,
};

use super::Spec;
use super::draw::{check_features, square, symmetric};
use super::scramble::{Scramble, unordered_pairs};
use super::topics::Topics;
use crate::Job;
use crate::splits::{self, Fractions, Planetoid};

pub(super) fn check(spec: &Spec) -> std::result::Result<(), String> {
    let [n, classes, features] = ["n", "classes", "features"].map(|key| spec.long(key));
    if spec.long("ones") > features {
        return Err(format!("{} ones do not fit in {features} features", spec.long("ones")));
    }
    if spec.long("ones") == 0 {
        check_features(n, features)?;
    }
    if classes > n.max(1) {
        return Err(format!("{classes} classes need at least as many nodes, not {n}"));
    }
    Blocks::of(spec).check()
}

pub(super) fn make(spec: &Spec, job: &Job) -> Result<Dataset> {
    let blocks = Blocks::of(spec);
    let topics = Topics {
        width: spec.count("features"),
        ones: spec.count("ones"),
        noise: spec.number("noise"),
    };
    let set = learnable(spec.generator().name, &blocks, &topics, job)?;
    match set.labels() {
        Some(labels) if labels.n_rows() > 0 => {
            let split = sensible_split(labels, &blocks)?;
            set.with_split(split)
        }
        _ => Ok(set),
    }
}

/// The Planetoid sizes where there are nodes enough, else 60/20/20 in every class.
fn sensible_split(labels: &Labels, blocks: &Blocks) -> Result<splits::Split> {
    let enough = blocks.n() >= 20 * blocks.sizes.len() + 1500;
    if enough && blocks.sizes.iter().all(|&size| size >= 20) {
        splits::planetoid(labels, Planetoid::CANONICAL, blocks.seed)
    } else {
        splits::random(labels, Fractions::DEFAULT, blocks.seed)
    }
}

/// The graph of the blocks, with their classes as labels and topics as features.
pub(crate) fn learnable(
    name: &str,
    blocks: &Blocks,
    topics: &Topics,
    job: &Job,
) -> Result<Dataset> {
    let layout = Layout::new(blocks);
    let graph = layout.graph(job)?;
    let set = Dataset::new(name, graph).with_labels(Labels::Classes {
        of: layout.class_of.clone().into(),
        count: blocks.sizes.len(),
        names: Vec::new(),
    })?;
    match topics.width {
        0 => Ok(set),
        _ => set.with_features(topics.features(&layout.class_of, blocks, job)?),
    }
}

/// How large the classes are and how their nodes are joined.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    pub(crate) sizes: Vec<usize>,
    pub(crate) edges: usize,
    pub(crate) homophily: f64,
    pub(crate) skew: f64,
    pub(crate) seed: u64,
}

impl Blocks {
    fn of(spec: &Spec) -> Self {
        let (n, classes) = (spec.count("n"), spec.count("classes"));
        Blocks {
            sizes: (0..classes).map(|c| (c + 1) * n / classes - c * n / classes).collect(),
            edges: spec.count("e"),
            homophily: spec.number("homophily"),
            skew: spec.number("skew"),
            seed: spec.long("seed"),
        }
    }

    fn n(&self) -> usize {
        self.sizes.iter().sum()
    }

    /// Edges inside classes, edges between them.
    fn wanted(&self) -> [usize; 2] {
        let inside = (self.homophily * self.edges as f64).round() as usize;
        [inside, self.edges - inside]
    }

    fn check(&self) -> std::result::Result<(), String> {
        let inside: u64 = self.sizes.iter().map(|&size| unordered_pairs(size as u64)).sum();
        let room = [inside, unordered_pairs(self.n() as u64) - inside];
        let places = ["inside its classes", "between its classes"];
        for ((wanted, room), place) in self.wanted().into_iter().zip(room).zip(places) {
            if wanted as u64 > room {
                return Err(format!("the graph has room for {room} edges {place}, not {wanted}"));
            }
        }
        Ok(())
    }
}

/// Where an edge lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Inside,
    Between,
}

/// Who stands in which slot.
struct Layout<'a> {
    blocks: &'a Blocks,
    /// Class `c` has the slots `starts[c]..starts[c + 1]`.
    starts: Vec<usize>,
    /// Class of each slot.
    class_at: Vec<u32>,
    /// Class of each node.
    class_of: Vec<i32>,
    node_at: Scramble,
    turns: Scramble,
    rng: Rng,
}

impl<'a> Layout<'a> {
    fn new(blocks: &'a Blocks) -> Self {
        let n = blocks.n();
        let mut starts = vec![0];
        starts.extend(blocks.sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end)
        }));
        let classes = blocks.sizes.iter().enumerate();
        let class_at: Vec<u32> =
            classes.flat_map(|(c, &size)| std::iter::repeat_n(c as u32, size)).collect();
        let node_at = Scramble::new(Rng::new(blocks.seed, "sbm nodes"), n as u64);
        let mut class_of = vec![0; n];
        for (slot, &class) in class_at.iter().enumerate() {
            class_of[node_at.at(slot as u64) as usize] = class as i32;
        }
        Layout {
            blocks,
            starts,
            class_at,
            class_of,
            node_at,
            turns: Scramble::new(Rng::new(blocks.seed, "sbm turns"), n as u64),
            rng: Rng::new(blocks.seed, "sbm draws"),
        }
    }

    fn graph(&self, job: &Job) -> Result<Graph> {
        let (n, edges) = (self.blocks.n(), self.blocks.edges);
        let [inside, _] = self.blocks.wanted();
        let kinds = Scramble::new(Rng::new(self.blocks.seed, "sbm kinds"), edges as u64);
        let graph = symmetric(n, edges, job, |draws, out| {
            for draw in draws {
                let is_inside = kinds.at(draw as u64) < inside as u64;
                let place = if is_inside { Where::Inside } else { Where::Between };
                if let Some([i, j]) = self.draw(draw as u64, place) {
                    out.push(i, j);
                }
            }
        })?;
        let missing = self.missing(graph.adjacency(), job);
        if missing == [0, 0] {
            return Ok(graph);
        }
        let further = self.further(graph.adjacency(), missing, job)?;
        joined(graph.adjacency(), &further, job)
    }

    /// Two nodes for draw `t`, unless chance names the same node again and again.
    fn draw(&self, t: u64, place: Where) -> Option<[u32; 2]> {
        const ATTEMPTS: usize = 16;
        let mut stream = self.rng.stream(t);
        for attempt in 0..ATTEMPTS {
            let source = if attempt < ATTEMPTS / 2 && t < self.class_at.len() as u64 {
                self.turns.at(t) as usize
            } else {
                let any = stream.below(self.class_at.len());
                self.member(self.class_at[any], &mut stream)
            };
            let own = self.class_at[source];
            let class = match place {
                Where::Inside => own,
                Where::Between => self.other(own, &mut stream),
            };
            let target = self.member(class, &mut stream);
            if target != source {
                return Some([source, target].map(|slot| self.node_at.at(slot as u64) as u32));
            }
        }
        None
    }

    /// A slot of a class, the first ones more often.
    fn member(&self, class: u32, stream: &mut Stream) -> usize {
        let [start, end] = [0, 1].map(|at| self.starts[class as usize + at]);
        let rank = (end - start) as f64 * stream.unit().powf(self.blocks.skew);
        (start + rank as usize).min(end - 1)
    }

    /// A class other than `own`, in proportion to their sizes.
    fn other(&self, own: u32, stream: &mut Stream) -> u32 {
        let [start, end] = [0, 1].map(|at| self.starts[own as usize + at]);
        let slot = stream.below(self.class_at.len() - (end - start));
        self.class_at[if slot < start { slot } else { slot + end - start }]
    }

    /// How many edges inside classes and between them the graph lacks.
    fn missing(&self, adjacency: &Csr, job: &Job) -> [usize; 2] {
        let inside = |rows: std::ops::Range<usize>| -> usize {
            let same = |i: usize| {
                let cols = adjacency.row_cols(i).iter();
                cols.filter(|&&j| self.class_of[j as usize] == self.class_of[i]).count()
            };
            rows.map(same).sum()
        };
        let counts = job.threads.map(adjacency.slices(CHUNK_ENTRIES), inside);
        let inside = counts.into_iter().sum::<usize>() / 2;
        let [wanted_inside, wanted_between] = self.blocks.wanted();
        [wanted_inside - inside, wanted_between - (adjacency.nnz() / 2 - inside)]
    }

    /// As many edges more, none of which the graph has.
    fn further(&self, adjacency: &Csr, missing: [usize; 2], job: &Job) -> Result<Vec<[u32; 2]>> {
        let mut found = HashSet::new();
        let mut edges = Vec::new();
        let mut t = self.blocks.edges.max(self.blocks.n()) as u64;
        for (missing, place) in missing.into_iter().zip([Where::Inside, Where::Between]) {
            let (wanted, last) = (edges.len() + missing, t + 200 * missing as u64 + 10_000);
            while edges.len() < wanted {
                if t == last {
                    return Err(self.too_dense());
                }
                if t.is_multiple_of(4096) {
                    job.tick(edges.len() as u64, None)?;
                }
                let Some([i, j]) = self.draw(t, place) else {
                    t += 1;
                    continue;
                };
                let new = adjacency.row_cols(i as usize).binary_search(&j).is_err();
                if new && found.insert([i.min(j), i.max(j)]) {
                    edges.push([i, j]);
                }
                t += 1;
            }
        }
        Ok(edges)
    }

    fn too_dense(&self) -> Error {
        let problem = format!(
            "{} edges leave the hubs no new neighbours; fewer edges, a smaller skew or another \
             homophily would be right",
            self.blocks.edges
        );
        Error::argument("sbm", problem)
    }
}

/// The graph with further edges, both ways.
fn joined(adjacency: &Csr, further: &[[u32; 2]], job: &Job) -> Result<Graph> {
    let mut coo = Coo::new(Tags::Absent);
    coo.extend(adjacency.slices(CHUNK_ENTRIES), job.threads, |rows, chunk| {
        for i in rows {
            let places = adjacency.row_cols(i).iter().map(|&j| [i as u32, j]);
            chunk.places.extend(places);
        }
        Ok(())
    })?;
    coo.extend(ranges(further.len(), CHUNK_ENTRIES), job.threads, |range, chunk| {
        let both = further[range].iter().flat_map(|&[i, j]| [[i, j], [j, i]]);
        chunk.places.extend(both);
        Ok(())
    })?;
    let extent = square(adjacency.n_rows());
    Ok(Graph::new(coo.into_csr(extent, Repeats::Merge, job.threads)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::tests::made;
    use crate::generate::{generate, parse};
    use lacis_core::Threads;

    fn classes(set: &Dataset) -> Vec<i32> {
        match set.labels() {
            Some(Labels::Classes { of, .. }) => of.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn counts_and_homophily_are_as_asked() {
        for (spec, edges, homophily) in [
            ("sbm:n=3000,e=20k,homophily=0.7", 20_000, 0.7),
            ("sbm:n=500,e=30k,homophily=0.3,skew=1", 30_000, 0.3),
            ("sbm:n=1000,e=5k,homophily=1,classes=1", 5_000, 1.0),
            ("sbm:n=1000,e=500,homophily=0", 500, 0.0),
        ] {
            let set = made(spec);
            let class = classes(&set);
            assert_eq!(set.graph().n_edges(), 2 * edges, "{spec}");
            let same = |(i, j, _): &(usize, usize, f32)| class[*i] == class[*j];
            let inside = set.graph().adjacency().entries().filter(same).count();
            let found = inside as f64 / (2 * edges) as f64;
            assert!((found - homophily).abs() < 1e-3, "{spec}: {found}");
        }
    }

    #[test]
    fn nobody_is_alone_and_some_are_popular() {
        let degrees = made("sbm:n=4k,e=8k").graph().adjacency().row_lengths();
        assert!(degrees.iter().all(|&d| d > 0));
        assert!(degrees.iter().max() > Some(&60));
        let even = made("sbm:n=4k,e=8k,skew=1").graph().adjacency().row_lengths();
        assert!(even.iter().max() < Some(&20));
    }

    #[test]
    fn splits_fit_the_size() {
        let large = made("sbm:n=2k,e=4k");
        let parts = |set: &Dataset| {
            let split = &set.splits()[0];
            [&split.train, &split.val, &split.test].map(Vec::len)
        };
        assert_eq!(
            (large.splits()[0].name.as_str(), parts(&large)),
            ("planetoid", [140, 500, 1000])
        );
        let small = made("sbm:n=100,e=400");
        assert_eq!((small.splits()[0].name.as_str(), parts(&small)), ("random", [60, 20, 20]));
    }

    #[test]
    fn impossible_blocks_are_refused() {
        let problem = |spec: &str| parse(spec).unwrap_err().to_string();
        assert!(problem("sbm:n=10,e=100").contains("room for"));
        assert!(
            problem("sbm:n=100,e=50,classes=1,homophily=0.5").contains("room for 0 edges between")
        );
        assert!(problem("sbm:n=5,e=0,classes=7").contains("at least as many nodes"));
        assert!(problem("sbm:features=5,ones=6").contains("do not fit"));
        let dense = parse("sbm:n=100,e=2450,classes=2,homophily=1,skew=8").unwrap();
        let error = generate(&dense, &Job::quiet(&Threads::one())).unwrap_err();
        assert!(error.to_string().contains("smaller skew"), "{error}");
    }
}
