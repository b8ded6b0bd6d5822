//! The table itself.

use std::io::BufWriter;

use super::{Format, Writes};
use crate::{
    edges, geom, gin, heterophilous, linqs, mat, metis, mtx, musae, native, npy, npz, ogb,
    planetoid, saint, tu,
};

const STORED: &str = "from source to target, as stored";
const BOTH: &str = "both ways, whichever way an edge is stored";
const MATRIX: &str = "entry (i, j) runs from node i to node j";

/// Every format there is. Detection asks them in this order.
pub static FORMATS: &[Format] = &[
    Format {
        name: "lacis",
        about: "own folder: meta.json and memory-mapped .npy arrays, checksummed",
        holds: "everything: weights, features, labels, splits, graphs of a collection, node ids",
        direction: STORED,
        recognises: |c| c.is_folder && native::is_native(&c.path),
        read: native::read,
        write: Writes::Folder(native::write),
    },
    Format {
        name: "planetoid",
        about: "ind.NAME.{x,y,tx,ty,allx,ally,graph,test.index}: Cora, CiteSeer, PubMed",
        holds: "features, classes, the canonical split",
        direction: "as the lists of neighbours have them: both ways",
        recognises: |c| planetoid::find(&c.path).is_some(),
        read: planetoid::read,
        write: Writes::No,
    },
    Format {
        name: "linqs",
        about: "NAME.content and NAME.cites: the first form of Cora and CiteSeer",
        holds: "features, classes with names, node ids",
        direction: BOTH,
        recognises: |c| linqs::find(&c.path).is_some(),
        read: linqs::read,
        write: Writes::No,
    },
    Format {
        name: "geom-gcn",
        about: "out1_graph_edges.txt, out1_node_feature_label.txt and *_split_*.npz",
        holds: "features, classes, all splits",
        direction: STORED,
        recognises: |c| geom::find(&c.path),
        read: geom::read,
        write: Writes::No,
    },
    Format {
        name: "graphsaint",
        about: "folder of adj_full.npz, feats.npy, class_map.json, role.json: Flickr, Yelp, Reddit",
        holds: "features, classes or any number of labels, the split",
        direction: MATRIX,
        recognises: |c| saint::recognises(&c.path),
        read: saint::read,
        write: Writes::No,
    },
    Format {
        name: "ogb",
        about: "OGB's raw folder: edge.csv.gz, num-node-list.csv.gz, node-feat, node-label, split/",
        holds: "features, classes, labels or targets, the splits of every scheme, collections",
        direction: "as stored; both ways for products, proteins, mol*, ppa and code2, as in OGB",
        recognises: |c| ogb::find(&c.path).is_some(),
        read: ogb::read,
        write: Writes::No,
    },
    Format {
        name: "tu",
        about: "TU Dortmund's DS_A.txt, DS_graph_indicator.txt, DS_graph_labels.txt, …",
        holds: "a collection: one-hot node labels or attributes, a class or targets a graph",
        direction: STORED,
        recognises: |c| tu::find(&c.path).is_some(),
        read: tu::read,
        write: Writes::No,
    },
    Format {
        name: "musae",
        about: "NAME_edges.csv, NAME.json, NAME_target.csv: Facebook, Twitch, GitHub, Deezer, …",
        holds: "0/1 features, classes or targets; a folder of such folders is one graph",
        direction: BOTH,
        recognises: |c| musae::recognises(&c.path),
        read: musae::read,
        write: Writes::No,
    },
    Format {
        name: "gnn-benchmark",
        about: "npz with adj_* and attr_* members: the Amazon and Coauthor sets",
        holds: "weights, features, classes or any number of labels",
        direction: MATRIX,
        recognises: |c| npz::is_gnn_benchmark(&c.members),
        read: npz::read_gnn_benchmark,
        write: Writes::No,
    },
    Format {
        name: "heterophilous",
        about: "npz with node_features, node_labels, edges and *_masks: Tolokers, Questions, …",
        holds: "features, classes, all splits",
        direction: BOTH,
        recognises: |c| heterophilous::recognises(&c.members),
        read: heterophilous::read,
        write: Writes::No,
    },
    Format {
        name: "scipy",
        about: "npz of scipy.sparse.save_npz (csr, csc, coo)",
        holds: "weights",
        direction: MATRIX,
        recognises: |c| npz::is_scipy(&c.members),
        read: npz::read_scipy,
        write: Writes::Binary(&[".npz"], |set, path, file, job| {
            npz::write_scipy(set, BufWriter::new(file), path, job)
        }),
    },
    Format {
        name: "npy",
        about: "npy array of whole numbers, 2×E or E×2: an edge_index",
        holds: "the graph alone",
        direction: "from row (or column) 0 to row (or column) 1",
        recognises: |c| c.is_plain && npy::is_edge_index(&c.head),
        read: npy::read,
        write: Writes::No,
    },
    Format {
        name: "mat",
        about: "MATLAB 5 .mat with a sparse adjacency: BlogCatalog, Flickr, the SuiteSparse sets",
        holds: "weights, features, classes or any number of labels",
        direction: MATRIX,
        recognises: |c| c.is_plain && mat::recognises(&c.head),
        read: mat::read,
        write: Writes::No,
    },
    Format {
        name: "mtx",
        about: "MatrixMarket coordinate file, plain, .gz or .zst",
        holds: "weights",
        direction: "entry (i, j) runs from node i to node j; both ways in a symmetric file",
        recognises: |c| mtx::has_banner(&c.head),
        read: mtx::read,
        write: Writes::Text(&[".mtx"], mtx::write),
    },
    Format {
        name: "gin",
        about: "the GIN code's text: graphs as 'tag degree neighbours' lines, and 10fold_idx/",
        holds: "a collection: one-hot node tags, a class a graph, the folds",
        direction: BOTH,
        recognises: |c| !c.is_folder && c.name.ends_with(".txt") && gin::recognises(&c.head),
        read: gin::read,
        write: Writes::No,
    },
    Format {
        name: "metis",
        about: "METIS .graph file: line i lists the neighbours of node i; plain, .gz or .zst",
        holds: "weights",
        direction: "as listed at both ends of an edge: both ways",
        recognises: |c| c.has_metis_name() && metis::recognises(&c.head),
        read: metis::read,
        write: Writes::No,
    },
    Format {
        name: "edges",
        about: "edge list 'source target [weight]': text, CSV, TSV, SNAP; plain, .gz or .zst",
        holds: "weights",
        direction: STORED,
        recognises: |c| !c.is_folder && c.has_text_name() && edges::looks_like_edges(&c.head),
        read: edges::read,
        write: Writes::Text(&[".txt", ".tsv", ".csv", ".el", ".edges", ".edgelist"], edges::write),
    },
];
