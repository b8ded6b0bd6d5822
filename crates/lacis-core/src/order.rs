//! Renumberings of the nodes that bring neighbours together in memory.

use std::collections::VecDeque;

use crate::csr::check_permutation;
use crate::{Csr, CsrView, Result};

/// A way to number nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ordering {
    /// Most neighbours first: the rows gathered most often share cache lines and pages.
    Degree,
    /// Reverse Cuthill-McKee: breadth first from the rim, small bandwidth; for meshes and roads.
    Rcm,
    /// Communities one after another, nested ones inside: clusters merged by modularity gain,
    /// numbered along the merge tree (as Rabbit Order does: Arai et al., IPDPS 2016).
    Community,
}

impl Ordering {
    /// All of them, with the names users write.
    pub const ALL: [(&'static str, Ordering); 3] =
        [("degree", Ordering::Degree), ("rcm", Ordering::Rcm), ("community", Ordering::Community)];

    /// The numbering of a square adjacency, given with its transpose.
    pub(crate) fn permutation(self, a: &Csr, t: &Csr) -> Permutation {
        let t = (!std::ptr::eq(a, t)).then(|| t.view());
        let both = Neighbours { a: a.view(), t };
        Permutation::from_sequence(match self {
            Ordering::Degree => by_degree(&both),
            Ordering::Rcm => reverse_cuthill_mckee(&both),
            Ordering::Community => by_community(&both),
        })
    }
}

/// A renumbering and its inverse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    new_of_old: Vec<u32>,
    old_of_new: Vec<u32>,
}

impl Permutation {
    /// From the new number of each old node.
    ///
    /// # Errors
    /// When a number is missing or occurs twice.
    pub fn new(new_of_old: Vec<u32>) -> Result<Self> {
        check_permutation(&new_of_old)?;
        Ok(Permutation::from_sequence(inverse(&new_of_old)))
    }

    /// From the old nodes in their new order.
    fn from_sequence(old_of_new: Vec<u32>) -> Self {
        Permutation { new_of_old: inverse(&old_of_new), old_of_new }
    }

    /// The new number of each old node.
    pub fn new_of_old(&self) -> &[u32] {
        &self.new_of_old
    }

    /// The old number of each new node.
    pub fn old_of_new(&self) -> &[u32] {
        &self.old_of_new
    }
}

fn inverse(permutation: &[u32]) -> Vec<u32> {
    let mut inverse = vec![0; permutation.len()];
    permutation.iter().enumerate().for_each(|(i, &p)| inverse[p as usize] = i as u32);
    inverse
}

/// The graph without directions: who points here and who is pointed to.
struct Neighbours<'a> {
    a: CsrView<'a>,
    /// Absent where the graph is symmetric: looking twice would only double the work.
    t: Option<CsrView<'a>>,
}

impl Neighbours<'_> {
    fn n(&self) -> usize {
        self.a.n_rows()
    }

    fn of(&self, i: u32) -> impl Iterator<Item = u32> {
        let back = self.t.map_or(&[][..], |t| t.row_cols(i as usize));
        self.a.row_cols(i as usize).iter().chain(back).copied()
    }

    fn degree(&self, i: u32) -> usize {
        self.a.row(i as usize).len() + self.t.map_or(0, |t| t.row(i as usize).len())
    }
}

fn by_degree(graph: &Neighbours<'_>) -> Vec<u32> {
    let mut nodes: Vec<u32> = (0..graph.n() as u32).collect();
    nodes.sort_by_cached_key(|&i| std::cmp::Reverse(graph.degree(i)));
    nodes
}

fn reverse_cuthill_mckee(graph: &Neighbours<'_>) -> Vec<u32> {
    let mut by_degree: Vec<u32> = (0..graph.n() as u32).collect();
    by_degree.sort_by_cached_key(|&i| graph.degree(i));
    let mut sequence = Vec::with_capacity(graph.n());
    let mut walk = Walk { mark: vec![0; graph.n()], walks: 0 };
    let mut placed = vec![false; graph.n()];
    for start in by_degree {
        if !placed[start as usize] {
            let component = walk.component_from_its_rim(graph, start);
            component.iter().for_each(|&i| placed[i as usize] = true);
            sequence.extend(component);
        }
    }
    sequence.reverse();
    sequence
}

/// Breadth-first walks that share one array of marks.
struct Walk {
    mark: Vec<u32>,
    walks: u32,
}

impl Walk {
    /// The component of `start`, breadth first from a node far away from its middle: walking to
    /// the far end a few times finds one (George and Liu's pseudo-peripheral node).
    fn component_from_its_rim(&mut self, graph: &Neighbours<'_>, start: u32) -> Vec<u32> {
        const TRIES: usize = 4;
        let (mut sequence, mut depth) = self.breadth_first(graph, start);
        for _ in 0..TRIES {
            let end = *sequence.last().expect("a walk visits its start");
            let (next, next_depth) = self.breadth_first(graph, end);
            if next_depth <= depth {
                break;
            }
            (sequence, depth) = (next, next_depth);
        }
        sequence
    }

    /// Nodes in the order of the walk, fewest neighbours first among equals, and its depth.
    fn breadth_first(&mut self, graph: &Neighbours<'_>, start: u32) -> (Vec<u32>, usize) {
        self.walks += 1;
        self.mark[start as usize] = self.walks;
        let mut queue = VecDeque::from([(start, 0)]);
        let (mut sequence, mut depth) = (Vec::new(), 0);
        let mut fresh = Vec::new();
        while let Some((i, level)) = queue.pop_front() {
            sequence.push(i);
            depth = level;
            for j in graph.of(i) {
                if self.mark[j as usize] != self.walks {
                    self.mark[j as usize] = self.walks;
                    fresh.push(j);
                }
            }
            fresh.sort_by_cached_key(|&j| graph.degree(j));
            queue.extend(fresh.drain(..).map(|j| (j, level + 1)));
        }
        (sequence, depth)
    }
}

/// Merges each node, fewest neighbours first, into the neighbouring cluster with the largest gain
/// in modularity, and numbers the nodes along the tree of merges.
fn by_community(graph: &Neighbours<'_>) -> Vec<u32> {
    let mut clusters = Clusters::new(graph);
    let mut nodes: Vec<u32> = (0..graph.n() as u32).collect();
    nodes.sort_by_cached_key(|&i| graph.degree(i));
    for node in nodes {
        clusters.merge(graph, node);
    }
    clusters.sequence()
}

struct Clusters {
    /// The cluster a node was merged into; itself while it is on top.
    parent: Vec<u32>,
    children: Vec<Vec<u32>>,
    /// Edges of a merged cluster to others, as `(node in the other cluster, number of edges)`.
    edges: Vec<Vec<(u32, f32)>>,
    degree: Vec<f64>,
    total: f64,
    /// Edges from the cluster being merged, by the other cluster; zero between merges.
    weight: Vec<f32>,
    touched: Vec<u32>,
}

impl Clusters {
    fn new(graph: &Neighbours<'_>) -> Self {
        let n = graph.n();
        let degree: Vec<f64> = (0..n as u32).map(|i| graph.degree(i) as f64).collect();
        Clusters {
            parent: (0..n as u32).collect(),
            children: vec![Vec::new(); n],
            edges: vec![Vec::new(); n],
            total: degree.iter().sum(),
            degree,
            weight: vec![0.0; n],
            touched: Vec::new(),
        }
    }

    /// The cluster on top of a node, the path to it shortened on the way.
    fn top(&mut self, mut node: u32) -> u32 {
        while self.parent[node as usize] != node {
            let above = self.parent[node as usize];
            self.parent[node as usize] = self.parent[above as usize];
            node = above;
        }
        node
    }

    fn merge(&mut self, graph: &Neighbours<'_>, node: u32) {
        graph.of(node).for_each(|j| self.touch(node, j, 1.0));
        // What was merged into this node takes its edges along; its list is needed no more.
        for child in 0..self.children[node as usize].len() {
            let child = self.children[node as usize][child];
            for (j, weight) in std::mem::take(&mut self.edges[child as usize]) {
                self.touch(node, j, weight);
            }
        }
        let best = self.best_of_touched(node);
        let edges =
            self.touched.drain(..).map(|j| (j, std::mem::take(&mut self.weight[j as usize])));
        let edges: Vec<(u32, f32)> = edges.collect();
        if let Some(best) = best {
            self.edges[node as usize] = edges;
            self.parent[node as usize] = best;
            self.children[best as usize].push(node);
            self.degree[best as usize] += self.degree[node as usize];
        }
    }

    fn touch(&mut self, node: u32, neighbour: u32, weight: f32) {
        let cluster = self.top(neighbour);
        if cluster != node {
            if self.weight[cluster as usize] == 0.0 {
                self.touched.push(cluster);
            }
            self.weight[cluster as usize] += weight;
        }
    }

    /// The neighbouring cluster with the largest positive gain, the first of equals.
    fn best_of_touched(&self, node: u32) -> Option<u32> {
        let own = self.degree[node as usize];
        let gain = |j: u32| {
            f64::from(self.weight[j as usize]) - own * self.degree[j as usize] / self.total
        };
        let mut best = (0.0, None);
        for &j in &self.touched {
            if gain(j) > best.0 {
                best = (gain(j), Some(j));
            }
        }
        best.1
    }

    /// Nodes along the trees, a cluster's own node before those merged into it.
    fn sequence(&self) -> Vec<u32> {
        let n = self.parent.len() as u32;
        let mut sequence = Vec::with_capacity(n as usize);
        let mut stack = Vec::new();
        for root in (0..n).filter(|&i| self.parent[i as usize] == i) {
            stack.push(root);
            while let Some(node) = stack.pop() {
                sequence.push(node);
                stack.extend(self.children[node as usize].iter().rev());
            }
        }
        sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Graph, Rng, Threads};

    fn shuffled(edges: &[(u32, u32)], n: usize) -> Graph {
        let mut names: Vec<u32> = (0..n as u32).collect();
        Rng::new(5, "test").stream(0).shuffle(&mut names);
        let both = edges.iter().flat_map(|&(u, v)| [(u, v), (v, u)]);
        let named: Vec<_> = both.map(|(u, v)| (names[u as usize], names[v as usize])).collect();
        Graph::new(
            Graph::from_edges(n, &named).unwrap().adjacency().as_ref().clone().without_order(),
        )
    }

    fn mean_distance(graph: &Graph, ordering: Ordering) -> f64 {
        let threads = Threads::one();
        let new = graph.ordering(ordering, &threads).unwrap();
        let adjacency = graph.adjacency().renumbered(new.new_of_old(), &threads).unwrap();
        Graph::new(adjacency).stats(&threads).mean_distance
    }

    #[test]
    fn every_ordering_is_a_permutation_and_keeps_the_graph() {
        let threads = Threads::one();
        for edges in [vec![], vec![(0, 1), (1, 2), (4, 4), (3, 1)], vec![(0, 1); 5]] {
            let graph = Graph::from_edges(6, &edges).unwrap();
            for (name, ordering) in Ordering::ALL {
                let p = graph.ordering(ordering, &threads).unwrap();
                assert!(Permutation::new(p.new_of_old().to_vec()).is_ok(), "{name}");
                let there = graph.adjacency().renumbered(p.new_of_old(), &threads).unwrap();
                let back = there.renumbered(p.old_of_new(), &threads).unwrap();
                assert!(back.same_entries(graph.adjacency()), "{name}");
            }
        }
    }

    #[test]
    fn cuthill_mckee_makes_a_grid_narrow() {
        let side = 20;
        let right = (0..side * side).filter(|i| i % side + 1 < side).map(|i| (i, i + 1));
        let down = (0..side * (side - 1)).map(|i| (i, i + side));
        let grid = shuffled(&right.chain(down).collect::<Vec<_>>(), (side * side) as usize);
        // A grid of side s has bandwidth s: distances of about 1/s of n or less.
        assert!(mean_distance(&grid, Ordering::Rcm) < 1.0 / f64::from(side));
    }

    #[test]
    fn communities_come_together() {
        let size = 20;
        let clique = |c: u32| {
            let nodes = c * size..(c + 1) * size;
            nodes.clone().flat_map(move |u| (u + 1..nodes.end).map(move |v| (u, v)))
        };
        let mut edges: Vec<_> = (0..10).flat_map(clique).collect();
        edges.extend((0..9).map(|c| (c * size, (c + 1) * size)));
        let graph = shuffled(&edges, 200);
        // Within a block of 20 of 200 the mean distance is a third of a tenth.
        assert!(mean_distance(&graph, Ordering::Community) < 0.05);
    }

    #[test]
    fn degree_order_starts_with_the_hub() {
        let graph = Graph::from_edges(5, &[(0, 3), (1, 3), (2, 3), (3, 4)]).unwrap();
        let p = graph.ordering(Ordering::Degree, &Threads::one()).unwrap();
        assert_eq!(p.old_of_new()[0], 3);
    }
}
