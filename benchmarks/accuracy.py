#!/usr/bin/env python3
"""Does Lacis reach the accuracies of PyTorch Geometric? Means of several seeds, equal recipes.

    python3 benchmarks/accuracy.py LACIS DATA_FOLDER -o RECORD.json [--seeds N] [SET[:MODEL] ...]
    python3 benchmarks/accuracy.py --table RECORD.json

SETS: cora citeseer pubmed (the canonical split, features normalised by rows) and amazon-computers
amazon-photo coauthor-cs (largest component, 20 nodes a class train, 30 a class validate, the rest
tests, by the seed). Both engines: hidden elements dropped, Adam, the weights of the epoch with the
best validation accuracy. What is in the record already is not run again, so that it can be cut
short and go on. The means are alike when they differ by at most 2·√(s₁²/n + s₂²/n).
"""
import argparse
import io
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

PLANETOID = ["cora", "citeseer", "pubmed"]
OTHERS = ["amazon-computers", "amazon-photo", "coauthor-cs"]
ALL_MODELS = ["gcn", "sage", "gin", "gat", "gatv2", "sgc", "tagcn", "cheb", "appnp", "gcn2", "mlp"]
SOME_MODELS = ["gcn", "sage", "gat"]
EPOCHS, DROPOUT = 200, 0.5
RECIPES = {  # hidden, rate, weight decay
    "planetoid": (64, 0.01, 5e-4),
    "others": (64, 0.01, 5e-4),
}


def models_of(name):
    return ALL_MODELS if name in PLANETOID else SOME_MODELS


def recipe_of(name):
    return RECIPES["planetoid" if name in PLANETOID else "others"]


def ours(lacis, folder, name, model, seed):
    hidden, rate, decay = recipe_of(name)
    flags = ["--row-normalize", "--split", "canonical"] if name in PLANETOID else [
        "--undirected", "--largest-component", "--split", split_file(folder, name, seed)]
    command = [lacis, "train", str(folder / name), "--model", model, "--hidden", hidden,
               "--heads", 8, "--dropout", DROPOUT, "--lr", rate, "--weight-decay", decay,
               "--epochs", EPOCHS, "--seed", seed, "--no-save", "--json", "--threads", 1, *flags]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])["test"]


CACHE = {}


def loaded(folder, name):
    """Features, labels, edges and, where there is one, the canonical split."""
    if name not in CACHE:
        CACHE[name] = planetoid(folder, name) if name in PLANETOID else benchmark(folder, name)
    return CACHE[name]


def planetoid(folder, name):
    from torch_geometric.datasets import Planetoid
    from torch_geometric.transforms import NormalizeFeatures
    with tempfile.TemporaryDirectory() as root:
        raw = pathlib.Path(root) / name / "raw"
        raw.mkdir(parents=True)
        for file in (folder / name).glob("ind.*"):
            (raw / file.name).write_bytes(file.read_bytes())
        return Planetoid(root, name, transform=NormalizeFeatures())[0]


def benchmark(folder, name):
    """A gnn-benchmark archive: symmetric, no loops, its largest component."""
    import scipy.sparse as sp
    import torch
    from scipy.sparse.csgraph import connected_components
    from torch_geometric.data import Data
    with zipfile.ZipFile(next((folder / name).glob("*.zip"))) as archive:
        inner = next(entry for entry in archive.namelist() if entry.endswith(".npz"))
        with np.load(io.BytesIO(archive.read(inner)), allow_pickle=True) as npz:
            parts = {key: npz[key] for key in npz}
    matrix = lambda key: sp.csr_matrix((parts[f"{key}_data"], parts[f"{key}_indices"],
                                        parts[f"{key}_indptr"]), shape=parts[f"{key}_shape"])
    a = matrix("adj")
    a = ((a + a.T) > 0).astype(np.float32).tocsr()
    _, component = connected_components(a, directed=False)
    keep = np.flatnonzero(component == np.bincount(component).argmax())
    a = a[keep][:, keep].tocoo()
    x = np.asarray(matrix("attr")[keep].todense(), dtype=np.float32)
    edges = torch.from_numpy(np.stack([a.row, a.col]).astype(np.int64))
    return Data(x=torch.from_numpy(x), y=torch.from_numpy(parts["labels"][keep].astype(np.int64)),
                edge_index=edges)


def split_of(labels, seed):
    """20 nodes a class train, 30 validate, the rest tests."""
    rng = np.random.default_rng(seed)
    part = np.full(len(labels), "test", dtype=object)
    for c in range(labels.max() + 1):
        nodes = rng.permutation(np.flatnonzero(labels == c))
        part[nodes[:20]], part[nodes[20:50]] = "train", "val"
    return part


def split_file(folder, name, seed):
    path = pathlib.Path(tempfile.gettempdir()) / f"split-{name}-{seed}.csv"
    part = split_of(loaded(folder, name).y.numpy(), seed)
    lines = [f"{node},{of}" for node, of in enumerate(part)]
    path.write_text("node,part\n" + "\n".join(lines) + "\n")
    return path


def net_of(model, a, b, hidden):
    import torch
    import torch.nn.functional as F
    from torch_geometric.nn import (APPNP, ChebConv, GATConv, GATv2Conv, GCN2Conv, GCNConv, GINConv,
                                    SAGEConv, SGConv, TAGConv)

    class Stack(torch.nn.Module):
        def __init__(self, convs, function):
            super().__init__()
            self.convs, self.function = torch.nn.ModuleList(convs), function

        def forward(self, x, edges):
            for conv in self.convs[:-1]:
                x = F.dropout(self.function(conv(x, edges)), DROPOUT, self.training)
            return self.convs[-1](x, edges)

    class Linears(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lins = torch.nn.ModuleList([torch.nn.Linear(a, hidden), torch.nn.Linear(hidden, b)])

        def forward(self, x, edges):
            x = F.dropout(self.lins[0](x).relu(), DROPOUT, self.training)
            return self.lins[1](x)

    class Predictor(Linears):
        def forward(self, x, edges):
            return APPNP(10, 0.1)(super().forward(x, edges), edges)

    class Deep(Linears):
        def __init__(self):
            super().__init__()
            self.convs = torch.nn.ModuleList([GCN2Conv(hidden, 0.1, 0.5, l + 1) for l in range(2)])

        def forward(self, x, edges):
            first = x = self.lins[0](x).relu()
            for conv in self.convs:
                x = conv(F.dropout(x, DROPOUT, self.training), first, edges).relu()
            return self.lins[1](F.dropout(x, DROPOUT, self.training))

    class Simple(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SGConv(a, b, K=2)

        def forward(self, x, edges):
            return self.conv(x, edges)

    two = lambda layer: Stack([layer(a, hidden), layer(hidden, b)], F.relu)
    attend = lambda layer: Stack([layer(a, hidden // 8, heads=8, dropout=DROPOUT),
                                  layer(hidden, b, heads=1, dropout=DROPOUT)], F.elu)
    return {
        "gcn": lambda: two(GCNConv), "sage": lambda: two(SAGEConv),
        "gin": lambda: two(lambda i, o: GINConv(torch.nn.Linear(i, o))),
        "gat": lambda: attend(GATConv), "gatv2": lambda: attend(GATv2Conv),
        "sgc": Simple, "tagcn": lambda: two(TAGConv),
        "cheb": lambda: two(lambda i, o: ChebConv(i, o, K=3)),
        "appnp": Predictor, "gcn2": Deep, "mlp": Linears,
    }[model]()


def theirs(folder, name, model, seed):
    import torch
    import torch.nn.functional as F
    torch.manual_seed(seed)
    data = loaded(folder, name)
    hidden, rate, decay = recipe_of(name)
    if name in PLANETOID:
        masks = [data.train_mask, data.val_mask, data.test_mask]
    else:
        part = split_of(data.y.numpy(), seed)
        masks = [torch.from_numpy(part == which) for which in ("train", "val", "test")]
    net = net_of(model, data.x.shape[1], int(data.y.max()) + 1, hidden)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, weight_decay=decay)
    best = (-1.0, 0.0)
    for _ in range(EPOCHS):
        net.train()
        optimizer.zero_grad()
        F.cross_entropy(net(data.x, data.edge_index)[masks[0]], data.y[masks[0]]).backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            right = net(data.x, data.edge_index).argmax(1) == data.y
        val, test = (right[mask].float().mean().item() for mask in masks[1:])
        if val > best[0]:
            best = (val, test)
    return best[1]


def judged(row):
    a, b = row["lacis"], row["pyg"]
    spread = [statistics.stdev(x) if len(x) > 1 else 0.0 for x in (a, b)]
    bound = 2 * math.sqrt(spread[0] ** 2 / len(a) + spread[1] ** 2 / len(b))
    off = statistics.mean(a) - statistics.mean(b)
    return statistics.mean(a), spread[0], statistics.mean(b), spread[1], off, bound


def table(rows):
    print("| data | model | seeds | Lacis | PyG | difference | bound | alike |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for key, row in rows.items():
        if len(row["lacis"]) < 2 or len(row["pyg"]) < 2:
            continue
        name, model = key.split(":")
        a, s, b, t, off, bound = (100 * number for number in judged(row))
        alike = "yes" if abs(off) <= bound else "**no**"
        print(f"| {name} | {model} | {len(row['lacis'])} | {a:.1f} ± {s:.1f} | {b:.1f} ± {t:.1f} | "
              f"{off:+.1f} | {bound:.1f} | {alike} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lacis", nargs="?")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("sets", nargs="*")
    parser.add_argument("-o", "--output")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", choices=["lacis", "pyg"], help="one engine alone")
    parser.add_argument("--table")
    args = parser.parse_intermixed_args()
    if args.table:
        return table(json.loads(pathlib.Path(args.table).read_text())["rows"])
    import torch
    import torch_geometric
    torch.set_num_threads(1)
    path, folder = pathlib.Path(args.output), pathlib.Path(args.folder)
    record = json.loads(path.read_text()) if path.exists() else {"rows": {}}
    record["versions"] = {"torch": torch.__version__, "torch_geometric": torch_geometric.__version__}
    record["recipe"] = {"epochs": EPOCHS, "dropout": DROPOUT,
                        "hidden, rate, weight decay": RECIPES}
    wanted = args.sets or PLANETOID + OTHERS
    wanted = [(name, model) for entry in wanted for name, _, one in [entry.partition(":")]
              for model in ([one] if one else models_of(name))]
    for name, model in wanted:
        row = record["rows"].setdefault(f"{name}:{model}", {"lacis": [], "pyg": []})
        for seed in range(args.seeds):
            if args.only != "pyg" and len(row["lacis"]) <= seed:
                row["lacis"].append(ours(args.lacis, folder, name, model, seed))
            if args.only != "lacis" and len(row["pyg"]) <= seed:
                row["pyg"].append(theirs(folder, name, model, seed))
            path.write_text(json.dumps(record, indent=1) + "\n")
        if not row["lacis"] or not row["pyg"]:
            continue
        a, s, b, t, off, bound = judged(row)
        print(f"{name} {model}: lacis {a:.4f} ± {s:.4f}, PyG {b:.4f} ± {t:.4f}, difference "
              f"{off:+.4f}, bound {bound:.4f}{'' if abs(off) <= bound else '  DIFFERENT'}", flush=True)


main()
