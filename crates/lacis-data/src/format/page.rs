//! `docs/formats.md`, made from the tables, so that it cannot go stale.

use std::fmt::Write;

use super::{FORMATS, Writes};
use crate::sets::PUBLIC;

const HEAD: &str = "\
# File formats

This page is made from the table of formats in `lacis-data` and checked by a test;
`LACIS_WRITE_DOCS=1 cargo test -p lacis-data` writes it anew.

A path is enough: `lacis data info PATH` tells the format from names and content, and
`--format NAME` overrides. A folder that holds one graph stands for it. Text may be packed
(`.gz`, `.zst`, told from the content). Archives (`.zip`, `.tar`, `.tar.gz`, `.tar.zst`) are read
still packed, and a path may lead into them: `twitch.zip/DE`.

Nodes are numbered from 0. An edge runs from its source to its target; `--undirected` adds the
reverse of every edge. Repeated edges are merged, their weights summed.
";

const OWN: &str = "
## Own tables

`lacis data convert --edges e.csv --nodes n.csv --id-col id --label-col y --split-col split -o my/`

Both tables are CSV (commas, semicolons, tabs or bars, quotes as in RFC 4180) or Parquet, with a
header. Ids are any text and are kept. Without a table of nodes, they come from the edges: in
numeric order where all ids are numbers, else by first appearance.

| column | becomes |
| --- | --- |
| source, target | an edge from source to target; an id not in the table of nodes is an error |
| weight | the edge's weight; missing is an error |
| id | the node's id; missing or twice is an error |
| label | words and whole numbers: classes; other numbers: targets; missing: unknown |
| split | train, val or test (also valid, validation, dev); missing: in no part |
| other numbers | a feature; missing values become the column's mean |
| other words | one-hot features; missing: all zeros; names, which differ much, are left out |

Missing is an empty field, or `NA`, `N/A`, `NaN`, `null`, `None`, `nil`, `?`, `-`.
";

const LIMITS: &str = "
## What is refused

| what | limit |
| --- | --- |
| packed text | 128 times its packed size, and 8 MiB |
| packed lists of edges | 24 times with gzip, 64 with Zstandard, and 8 MiB |
| archives | 128 times their size, and 16 MiB; 2,048 files; no links, no names that lead out |
| archives of arrays (`.npz`), packed `.mat` elements | 400 times their size, and 64 or 16 MiB |
| node numbers in an `.npz` | 32 for each packed byte, and 2 million |
| Parquet | 64 values and 256 bytes of words for each byte, and 4 million values, 16 MiB |
| nodes, classes, columns | 64 for each entry that is there, and 4 million |
| nodes, where each has a line | 64 for each line, and 65,536 |
| lines | 64 KiB in edge lists and MatrixMarket files, 16 MiB elsewhere |
| comments before an edge list | 4 MiB |
| pickles | plain data only: anything that asks for code is an error |

What is refused costs less than a second and 100 MB, which tests measure. Archives are unpacked into
a private folder in the system's temporary folder (`TMPDIR`), which is removed at the end.
";

/// The page's text.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n| name | what it is | what it may have | edges run | written |\n");
    page.push_str("| --- | --- | --- | --- | --- |\n");
    for format in FORMATS {
        let written = match &format.write {
            Writes::No => "no".to_owned(),
            Writes::Folder(_) => "a path without an ending, or `.lacis`".to_owned(),
            Writes::Text(endings, _) => format!("`{}`, also packed", endings.join("` `")),
            Writes::Binary(endings, _) => format!("`{}`", endings.join("` `")),
        };
        let (name, about) = (format.name, format.about.replace('|', "\\|"));
        let (holds, direction) = (format.holds, format.direction);
        let row = format!("| `{name}` | {about} | {holds} | {direction} | {written} |");
        writeln!(page, "{row}").expect("memory takes everything");
    }
    page.push_str(OWN);
    page.push_str("\n## Public sets\n\n`lacis data fetch NAME` downloads them.\n\n");
    page.push_str("| name | nodes | edges | download | source | licence | checksums |\n");
    page.push_str("| --- | --- | --- | --- | --- | --- | --- |\n");
    for set in PUBLIC.iter().filter(|set| !set.files.is_empty()) {
        let known = set.files.iter().all(|file| file.sha256.is_some());
        let sums = if known { "known" } else { "not known" };
        let (name, nodes, edges, size) = (set.name, set.nodes, set.edges, set.size());
        let (source, licence) = (set.source, set.licence);
        let row =
            format!("| `{name}` | {nodes} | {edges} | {size} | {source} | {licence} | {sums} |");
        writeln!(page, "{row}").expect("memory takes everything");
    }
    page.push_str(LIMITS);
    page
}
