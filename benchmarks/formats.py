"""Reading text formats: Lacis against the Python readers that people use now, taking turns.

usage: python3 benchmarks/formats.py [--rows 10000000] [--rounds 3] [--only csv,mtx,…] [--folder DIR] [--out RECORD.json]

Needs numpy, scipy and pandas (and torch_geometric for `tu`), and
`cargo build --release -p lacis-data --example loading` before. Files are made once in DIR; the Python side only
parses, Lacis also builds the graph; sizes are compared before times are believed. A record keeps what it has of
formats that are not asked for.
"""
import argparse, json, os, statistics, tempfile, time
import numpy as np, pandas as pd, scipy.io
from loading import Lacis, machine


def made(path, write):
    if not os.path.exists(path):
        write(path)
    return path


def random_edges(rows, nodes):
    rng = np.random.default_rng(1)
    return (rng.integers(0, nodes, rows, dtype=np.int32) for _ in range(2))


def csv(folder, rows):
    """A table of edges under a header."""
    def write(path):
        u, v = random_edges(rows, rows // 12)
        pd.DataFrame({"source": u, "target": v}).to_csv(path, index=False)
    path = made(os.path.join(folder, "e.csv"), write)
    return path, lambda: len(pd.read_csv(path)), "pandas.read_csv"


def weighted(folder, rows):
    """The same with weights."""
    def write(path):
        u, v = random_edges(rows, rows // 12)
        w = np.random.default_rng(2).random(rows).round(4)
        pd.DataFrame({"source": u, "target": v, "weight": w}).to_csv(path, index=False)
    path = made(os.path.join(folder, "w.csv"), write)
    return path, lambda: len(pd.read_csv(path)), "pandas.read_csv"


def mtx(folder, rows):
    """A MatrixMarket pattern."""
    def write(path):
        u, v = random_edges(rows, rows // 12)
        with open(path, "w") as file:
            file.write(f"%%MatrixMarket matrix coordinate pattern general\n{rows // 12} {rows // 12} {rows}\n")
        pd.DataFrame({"u": u + 1, "v": v + 1}).to_csv(path, sep=" ", header=False, index=False, mode="a")
    path = made(os.path.join(folder, "m.mtx"), write)
    return path, lambda: scipy.io.mmread(path).nnz, "scipy.io.mmread"


def ogb(folder, rows):
    """OGB's raw folder: gzipped edges, features, labels."""
    raw = os.path.join(folder, "ogb", "raw")
    os.makedirs(raw, exist_ok=True)
    nodes, gz = rows // 50, {"header": False, "index": False, "compression": {"method": "gzip", "compresslevel": 6}}
    u, v = random_edges(rows, nodes)
    rng = np.random.default_rng(3)
    made(os.path.join(raw, "edge.csv.gz"), lambda p: pd.DataFrame({"u": u, "v": v}).to_csv(p, **gz))
    made(os.path.join(raw, "num-node-list.csv.gz"), lambda p: pd.DataFrame([nodes]).to_csv(p, **gz))
    made(os.path.join(raw, "num-edge-list.csv.gz"), lambda p: pd.DataFrame([rows]).to_csv(p, **gz))
    made(os.path.join(raw, "node-feat.csv.gz"), lambda p: pd.DataFrame(rng.normal(size=(nodes, 16)).round(6)).to_csv(p, **gz))
    made(os.path.join(raw, "node-label.csv.gz"), lambda p: pd.DataFrame(rng.integers(0, 40, nodes)).to_csv(p, **gz))

    def read():
        names = ["num-node-list", "num-edge-list", "node-feat", "node-label"]
        for name in names:
            pd.read_csv(os.path.join(raw, name + ".csv.gz"), compression="gzip", header=None).values
        return len(pd.read_csv(os.path.join(raw, "edge.csv.gz"), compression="gzip", header=None).values.T.astype(np.int64)[0])
    return os.path.join(folder, "ogb"), read, "ogb's read_csv_graph_raw: pandas.read_csv of each file"


def tu(folder, rows):
    """TU Dortmund's text: many small graphs."""
    base = os.path.join(folder, "tu")
    os.makedirs(base, exist_ok=True)
    size, graphs = 25, rows // 100
    rng = np.random.default_rng(4)
    first = np.repeat(np.arange(graphs) * size, 100)
    u, v = (first + rng.integers(0, size, len(first)) + 1 for _ in range(2))
    text = lambda frame: lambda path: frame.to_csv(path, sep=",", header=False, index=False)
    made(os.path.join(base, "T_A.txt"), text(pd.DataFrame({"u": u, "v": v})))
    made(os.path.join(base, "T_graph_indicator.txt"), text(pd.DataFrame(np.repeat(np.arange(graphs) + 1, size))))
    made(os.path.join(base, "T_graph_labels.txt"), text(pd.DataFrame(rng.integers(0, 2, graphs))))
    made(os.path.join(base, "T_node_labels.txt"), text(pd.DataFrame(rng.integers(0, 7, graphs * size))))

    def read():
        from torch_geometric.io.tu import read_tu_data
        return read_tu_data(base, "T")[0].num_nodes
    return base, read, "torch_geometric.io.read_tu_data"


def musae(folder, rows):
    """MUSAE: edges in CSV, features in JSON, labels in CSV."""
    base, nodes = os.path.join(folder, "musae"), rows // 20
    os.makedirs(base, exist_ok=True)
    u, v = random_edges(rows, nodes)
    rng = np.random.default_rng(5)
    made(os.path.join(base, "a_edges.csv"), lambda p: pd.DataFrame({"id_1": u, "id_2": v}).to_csv(p, index=False))
    made(os.path.join(base, "a_target.csv"), lambda p: pd.DataFrame({"id": np.arange(nodes), "target": rng.integers(0, 2, nodes)}).to_csv(p, index=False))

    def features(path):
        lists = rng.integers(0, 4000, (nodes, 12)).tolist()
        with open(path, "w") as file:
            json.dump({str(i): ones for i, ones in enumerate(lists)}, file)
    made(os.path.join(base, "a.json"), features)

    def read():
        with open(os.path.join(base, "a.json")) as file:
            json.load(file)
        pd.read_csv(os.path.join(base, "a_target.csv"))
        return len(pd.read_csv(os.path.join(base, "a_edges.csv")))
    return base, read, "json.load and pandas.read_csv"


def linqs(folder, rows):
    """LINQS: a line of features a node; here a number counts as a row."""
    base, width = os.path.join(folder, "linqs"), 1000
    os.makedirs(base, exist_ok=True)
    nodes = rows // width
    rng = np.random.default_rng(6)

    def content(path):
        frame = pd.DataFrame((rng.random((nodes, width)) < 0.02).astype(np.int8))
        frame.insert(0, "id", np.arange(nodes) + 1000)
        frame["class"] = "c" + pd.Series(rng.integers(0, 7, nodes)).astype(str)
        frame.to_csv(path, sep="\t", header=False, index=False)
    made(os.path.join(base, "a.content"), content)
    u, v = (rng.integers(1000, 1000 + nodes, 4 * nodes) for _ in range(2))
    made(os.path.join(base, "a.cites"), lambda p: pd.DataFrame({"u": u, "v": v}).to_csv(p, sep="\t", header=False, index=False))

    def read():
        pd.read_csv(os.path.join(base, "a.cites"), sep="\t", header=None)
        return len(pd.read_csv(os.path.join(base, "a.content"), sep="\t", header=None))
    return base, read, "pandas.read_csv of both files"


FORMATS = [csv, weighted, mtx, ogb, tu, musae, linqs]


def compare(make, folder, args):
    path, theirs, against = make(folder, args.rows)
    lacis, mine, peer = Lacis(), [], []
    for turn in range(args.rounds + 1):
        answer = lacis("open", path)
        begun = time.perf_counter()
        count = theirs()
        elapsed = (time.perf_counter() - begun) * 1e3
        assert count and answer["nnz"]
        if turn:
            mine.append(answer["ms"])
            peer.append(elapsed)
    lacis.close()
    a, b = statistics.median(mine), statistics.median(peer)
    print(f"{make.__name__}: lacis {a:.0f} ms, {against} {b:.0f} ms, {b / a:.1f} times", flush=True)
    about = {"about": make.__doc__, "rows": args.rows, "peer": against}
    return {**about, "lacis_ms": a, "peer_ms": b, "times": b / a, "rounds": [mine, peer]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--folder", help="where files are made, and kept for the next time")
    parser.add_argument("--prepare", action="store_true", help="make the files and do nothing else")
    parser.add_argument("--out")
    args = parser.parse_args()
    record = json.load(open(args.out)) if args.out and os.path.exists(args.out) else {}
    record["machine"] = machine()
    wanted = args.only.split(",") if args.only else [make.__name__ for make in FORMATS]
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or temporary
        for make in FORMATS:
            if make.__name__ in wanted:
                if args.prepare:
                    make(folder, args.rows)
                else:
                    record[make.__name__] = compare(make, folder, args)
    if args.out:
        with open(args.out, "w") as file:
            json.dump(record, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
