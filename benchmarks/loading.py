"""Building and loading graphs: Lacis against SciPy and pandas, alternating in one run.

usage: python3 benchmarks/loading.py [--edges 30000000] [--nodes 1000000] [--rounds 5] [--out RECORD.json]

Needs numpy, scipy and pandas, and `cargo build --release -p lacis-data --features parquet --example loading` before.
Both sides work on the same random edges; the results are compared before times are believed.
"""
import argparse, json, os, platform, statistics, subprocess, sys, tempfile, time
import numpy as np, pandas as pd, scipy, scipy.sparse as sp

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release/examples/loading")


class Lacis:
    """The Rust side, told what to do line by line."""

    def __init__(self):
        self.process = subprocess.Popen([BINARY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            sys.exit(answer["error"])
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def timed(function):
    begun = time.perf_counter()
    result = function()
    return (time.perf_counter() - begun) * 1e3, result


def scipy_csr(n, rows, cols, values):
    """SciPy's `.tocsr()`: columns sorted, repeated entries summed."""
    csr = sp.coo_matrix((values, (rows, cols)), shape=(n, n)).tocsr()
    assert csr.has_canonical_format
    return csr


def alternate(rounds, ours, theirs):
    """Medians of both after one warm-up round each; ours and theirs take turns."""
    mine, peer = [], []
    for turn in range(rounds + 1):
        a, b = ours(), theirs()
        if turn:
            mine.append(a)
            peer.append(b)
    return statistics.median(mine), statistics.median(peer), mine, peer


def build(lacis, args, folder, record):
    rng = np.random.default_rng(1)
    n, e = args.nodes, args.edges
    rows, cols = (rng.integers(0, n, e, dtype=np.int32) for _ in range(2))
    values = rng.random(e, dtype=np.float32)
    paths = [os.path.join(folder, name) for name in ("rows.bin", "cols.bin", "values.bin")]
    for path, array in zip(paths, (rows, cols, values)):
        array.tofile(path)
    expected = scipy_csr(n, rows, cols, values)
    answer = lacis("coo", n, *paths)
    assert answer["nnz"] == expected.nnz and answer["column_sum"] == int(expected.indices.sum(dtype=np.int64))
    assert abs(answer["sum"] / float(expected.data.sum(dtype=np.float64)) - 1) < 1e-6
    del expected
    for name, parts in (("weighted", paths), ("unweighted", paths[:2])):
        ones = values if name == "weighted" else np.ones(e, np.float32)
        mine, peer, *all_times = alternate(
            args.rounds, lambda: lacis("coo", n, *parts)["ms"], lambda: timed(lambda: scipy_csr(n, rows, cols, ones))[0]
        )
        note(record, f"coo to csr, {name}", mine, peer, "scipy .tocsr()", all_times)
    return rows, cols


def text(lacis, args, folder, record, rows, cols):
    path = os.path.join(folder, "edges.txt")
    pd.DataFrame({"u": rows, "v": cols}).to_csv(path, sep="\t", header=False, index=False)

    def pandas():
        frame = pd.read_csv(path, sep="\t", header=None, dtype=np.int32, engine="c")
        ones = np.ones(len(frame), np.float32)
        return scipy_csr(args.nodes, frame[0].to_numpy(), frame[1].to_numpy(), ones)

    expected = pandas()
    answer = lacis("open", path)
    assert answer["nnz"] == expected.nnz, (answer["nnz"], expected.nnz)
    del expected
    rounds = max(2, args.rounds // 2)
    mine, peer, *all_times = alternate(rounds, lambda: lacis("open", path)["ms"], lambda: timed(pandas)[0])
    note(record, "text to csr", mine, peer, "pandas.read_csv (C) and scipy .tocsr()", all_times)
    fresh = Lacis()
    answer = fresh("open", path)
    fresh.close()
    record["peak memory of reading text, times the finished graph"] = answer["peak_bytes"] / answer["graph_bytes"]
    return path


def own(args, folder, record, path):
    """Opening the own format, checks included, in a warm cache; and a large generator."""
    graph = os.path.join(folder, "graph")
    binary = os.path.join(os.path.dirname(os.path.dirname(BINARY)), "lacis")
    subprocess.run([binary, "-q", "data", "convert", path, "-o", graph], check=True, stdout=subprocess.DEVNULL)
    lacis = Lacis()
    record["open own format, ms"] = statistics.median([lacis("open", graph)["ms"] for _ in range(2 * args.rounds + 1)][1:])
    spec = f"rmat:n={args.nodes},e={args.edges},seed=1"
    record[f"{spec}, ms"] = statistics.median([lacis("open", spec)["ms"] for _ in range(3)])
    lacis.close()


def note(record, what, mine, peer, against, all_times):
    record[what] = {"lacis_ms": mine, "peer_ms": peer, "peer": against, "times": peer / mine, "rounds": all_times}
    print(f"{what}: lacis {mine:.0f} ms, {against} {peer:.0f} ms, {peer / mine:.1f} times", flush=True)


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    versions = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__, "pandas": pd.__version__}
    return {"cpu": model, "cores": os.cpu_count(), **versions}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=30_000_000)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out")
    args = parser.parse_args()
    record = {"machine": machine(), "edges": args.edges, "nodes": args.nodes}
    lacis = Lacis()
    with tempfile.TemporaryDirectory() as folder:
        rows, cols = build(lacis, args, folder, record)
        path = text(lacis, args, folder, record, rows, cols)
        lacis.close()
        own(args, folder, record, path)
    for name, value in record.items():
        if isinstance(value, float):
            print(f"{name}: {value:.2f}")
    if args.out:
        os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
        with open(args.out, "w") as file:
            json.dump(record, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
