//! [`Parts`]: who of many workers holds which node, and what must cross between them.
//!
//! A worker that holds some rows of `A` gathers from the columns of their entries; those that
//! another worker holds are its halo. An exchange sends every node of a halo once, however many
//! rows gather from it.

use lacis_core::{Csr, Error, Graph, Result, Threads};

/// Nobody has touched it.
const NOBODY: u32 = u32::MAX;

/// A worker for every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    of: Vec<u32>,
    count: usize,
}

impl Parts {
    /// Given ones.
    ///
    /// # Errors
    /// When a node's part is none of `count`.
    pub fn new(of: Vec<u32>, count: usize) -> Result<Self> {
        match of.iter().position(|&part| part as usize >= count) {
            None => Ok(Parts { of, count }),
            Some(node) => Err(Error::argument(
                format!("part of node {node}"),
                format!("{} is none of {count}", of[node]),
            )),
        }
    }

    /// Parts at random, the same for the same sizes: balanced, and cut everywhere.
    pub fn hashed(n_nodes: usize, count: usize) -> Self {
        let count = count.max(1);
        let of = (0..n_nodes as u64).map(|node| (mixed(node) % count as u64) as u32);
        Parts { of: of.collect(), count }
    }

    /// METIS's parts: as few edges between them as it finds, entries balanced.
    ///
    /// # Errors
    /// When the graph is too large for METIS's numbers, or Lacis was built without it.
    pub fn metis(graph: &Graph, count: usize, threads: &Threads) -> Result<Self> {
        let n = graph.n_nodes();
        if count <= 1 || n <= count {
            let of = (0..n).map(|node| (node % count.max(1)) as u32).collect();
            return Ok(Parts { of, count: count.max(1) });
        }
        let undirected = Undirected::of(graph, threads)?;
        Ok(Parts { of: with_metis(&undirected, count)?, count })
    }

    /// How many parts there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The part of every node.
    pub fn of(&self) -> &[u32] {
        &self.of
    }

    /// Nodes of each part, ascending.
    pub fn members(&self) -> Vec<Vec<u32>> {
        let mut members = vec![Vec::new(); self.count];
        for (node, &part) in self.of.iter().enumerate() {
            members[part as usize].push(node as u32);
        }
        members
    }

    /// What crosses when every part computes its rows of `matrix·x`.
    pub fn halo(&self, matrix: &Csr) -> Halo {
        let mut halo = Halo::new(self.count);
        let mut touched = vec![NOBODY; matrix.n_cols()];
        let mut asked = vec![NOBODY; self.count];
        for (part, members) in self.members().iter().enumerate() {
            halo.nodes[part] = members.len() as u64;
            for &row in members {
                let cols = matrix.row_cols(row as usize);
                halo.entries[part] += cols.len() as u64;
                for &col in cols {
                    let owner = self.of[col as usize] as usize;
                    if owner == part {
                        continue;
                    }
                    halo.cut += 1;
                    if std::mem::replace(&mut touched[col as usize], part as u32) != part as u32 {
                        halo.received[part] += 1;
                        halo.sent[owner] += 1;
                        if std::mem::replace(&mut asked[owner], part as u32) != part as u32 {
                            halo.messages[part] += 1;
                        }
                    }
                }
            }
        }
        halo
    }
}

/// What crosses between parts for one product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halo {
    /// Nodes that each part holds.
    pub nodes: Vec<u64>,
    /// Entries of their rows.
    pub entries: Vec<u64>,
    /// Nodes that each part needs of others.
    pub received: Vec<u64>,
    /// Nodes that each part sends, once per part that needs them.
    pub sent: Vec<u64>,
    /// Parts that each part receives from.
    pub messages: Vec<u64>,
    /// Entries whose ends are apart.
    pub cut: u64,
}

impl Halo {
    fn new(count: usize) -> Self {
        let none = vec![0; count];
        Halo {
            nodes: none.clone(),
            entries: none.clone(),
            received: none.clone(),
            sent: none.clone(),
            messages: none,
            cut: 0,
        }
    }

    /// Nodes that are sent, all parts together.
    pub fn total(&self) -> u64 {
        self.received.iter().sum()
    }

    /// The largest share of entries over the mean one.
    pub fn balance(&self) -> f64 {
        let most = self.entries.iter().copied().max().unwrap_or(0) as f64;
        let mean = self.entries.iter().sum::<u64>() as f64 / self.entries.len().max(1) as f64;
        if mean > 0.0 { most / mean } else { 1.0 }
    }
}

/// A number that nothing but itself resembles (the finaliser of SplitMix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A graph as METIS takes it: both directions of every edge, each once, no loops.
struct Undirected {
    starts: Vec<i32>,
    ends: Vec<i32>,
}

impl Undirected {
    fn of(graph: &Graph, threads: &Threads) -> Result<Self> {
        let (matrix, turned) = (graph.adjacency(), graph.transpose(threads));
        let mut found = Undirected { starts: vec![0], ends: Vec::new() };
        let mut row: Vec<u32> = Vec::new();
        for node in 0..graph.n_nodes() {
            row.clear();
            row.extend_from_slice(matrix.row_cols(node));
            row.extend_from_slice(turned.row_cols(node));
            row.sort_unstable();
            row.dedup();
            let others = row.iter().filter(|&&other| other as usize != node);
            found.ends.extend(others.map(|&other| other as i32));
            let end = i32::try_from(found.ends.len()).map_err(|_| {
                Error::argument(
                    "METIS",
                    "takes graphs of at most 2³¹ entries; hashing has no limit",
                )
            })?;
            found.starts.push(end);
        }
        Ok(found)
    }
}

#[cfg(feature = "metis")]
fn with_metis(graph: &Undirected, count: usize) -> Result<Vec<u32>> {
    let failed = |problem: String| Error::argument("METIS", problem);
    let weights: Vec<i32> = graph.starts.windows(2).map(|pair| pair[1] - pair[0] + 1).collect();
    let mut parts = vec![0; weights.len()];
    metis::Graph::new(1, count as i32, &graph.starts, &graph.ends)
        .map_err(|e| failed(e.to_string()))?
        .set_vwgt(&weights)
        .part_kway(&mut parts)
        .map_err(|e| failed(e.to_string()))?;
    Ok(parts.into_iter().map(|part| part as u32).collect())
}

#[cfg(not(feature = "metis"))]
fn with_metis(graph: &Undirected, _: usize) -> Result<Vec<u32>> {
    let nodes = graph.starts.len() - 1;
    let problem = format!("no parts for {nodes} nodes: built without the feature `metis`");
    Err(Error::argument("METIS", problem))
}
