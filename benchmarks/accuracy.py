#!/usr/bin/env python3
"""Does Lacis reach the accuracies of PyTorch Geometric? Means of several seeds, equal recipes.

    python3 benchmarks/accuracy.py LACIS DATA_FOLDER -o RECORD.json [--seeds N] [SET[:MODEL] ...]
    python3 benchmarks/accuracy.py --table RECORD.json

SETS: cora citeseer pubmed (the canonical split, features normalised by rows) and amazon-computers
amazon-photo coauthor-cs (largest component, 20 nodes a class train, 30 a class validate, the rest
tests, by the seed), and mutag proteins (graphs: ten folds, GIN with norms and a sum). Both engines:
hidden elements dropped, Adam, the weights of the epoch with the best validation accuracy, the same
splits. What is in the record already is not run again, so that it can be cut short and go on. The
means are alike when they differ by at most 2·√(s₁²/n + s₂²/n).
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
from concurrent.futures import ThreadPoolExecutor

import numpy as np

PLANETOID = ["cora", "citeseer", "pubmed"]
OTHERS = ["amazon-photo", "coauthor-cs", "amazon-computers"]
COLLECTIONS = ["mutag", "proteins"]
ALL_MODELS = ["gcn", "sage", "gin", "gat", "gatv2", "sgc", "tagcn", "cheb", "appnp", "gcn2", "mlp"]
SOME_MODELS = ["gcn", "sage", "gin", "gat"]
EPOCHS, FOLD_EPOCHS, DROPOUT = 200, 100, 0.5
RECIPES = {  # hidden, rate, weight decay
    "planetoid": (64, 0.01, 5e-4),
    "others": (64, 0.01, 5e-4),
    "collections": (32, 0.01, 0.0),
}


def kind_of(name):
    kinds = {"planetoid": PLANETOID, "others": OTHERS, "collections": COLLECTIONS}
    return next(kind for kind, names in kinds.items() if name in names)


def models_of(name):
    return {"planetoid": ALL_MODELS, "others": SOME_MODELS, "collections": ["gin"]}[kind_of(name)]


def recipe_of(name):
    return RECIPES[kind_of(name)]


def flags_of(folder, name, seed):
    """The data and what is peculiar to its kind."""
    split = ["--split", split_file(folder, name, seed)] if name not in PLANETOID else []
    return {
        "planetoid": [folder / name, "--row-normalize", "--split", "canonical", "--epochs", EPOCHS],
        "others": [folder / name, "--undirected", "--largest-component", "--epochs", EPOCHS],
        "collections": [folder / f"tu-{name.upper()}", "--layers", 5, "--mlp-layers", 2, "--norm",
                        "batch", "--batch-size", 32, "--epochs", FOLD_EPOCHS],
    }[kind_of(name)] + split


def ours(lacis, folder, name, model, seed):
    hidden, rate, decay = recipe_of(name)
    command = [lacis, "train", *flags_of(folder, name, seed), "--model", model, "--hidden", hidden,
               "--dropout", DROPOUT, "--lr", rate, "--weight-decay", decay,
               "--seed", seed, "--no-save", "--json", "--threads", 1]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])["test"]


CACHE, GRAPHS = {}, {}
# Where PyG trains.
DEVICE = "cpu"


def loaded(folder, name):
    """Features, labels, edges and, where there is one, the canonical split."""
    if name not in CACHE:
        reader = {"planetoid": planetoid, "others": benchmark, "collections": collection}
        CACHE[name] = reader[kind_of(name)](folder, name)
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
    data = loaded(folder, name)
    if name in COLLECTIONS:
        part = fold_of(np.array([int(one.y) for one in data]), seed)
    else:
        part = split_of(data.y.numpy(), seed)
    lines = [f"{node},{of}" for node, of in enumerate(part)]
    path.write_text("node,part\n" + "\n".join(lines) + "\n")
    return path


def theirs(folder, name, model, seed):
    import pygnets
    import torch
    if name in COLLECTIONS:
        return graphs(folder, name, seed)
    torch.manual_seed(seed)
    data = loaded(folder, name)
    graph, y = GRAPHS.get(name) or (pygnets.Graph(data.x.to(DEVICE), data.edge_index.to(DEVICE)),
                                    data.y.to(DEVICE))
    GRAPHS[name] = graph, y
    if seed == 0:
        pygnets.checked(model, graph)
    hidden, rate, decay = recipe_of(name)
    if name in PLANETOID:
        masks = [data.train_mask, data.val_mask, data.test_mask]
    else:
        part = split_of(data.y.numpy(), seed)
        masks = [torch.from_numpy(part == which) for which in ("train", "val", "test")]
    masks = [mask.to(DEVICE) for mask in masks]
    net = pygnets.net_of(model, data.x.shape[1], int(data.y.max()) + 1, hidden).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, weight_decay=decay)
    best = (-1.0, 0.0)
    for _ in range(EPOCHS):
        net.train()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(graph)[masks[0]], y[masks[0]]).backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            right = net(graph).argmax(1) == y
        val, test = (right[mask].float().mean().item() for mask in masks[1:])
        best = max(best, (val, test), key=lambda pair: pair[0])
    return best[1]


def collection(folder, name):
    """A TU folder: one-hot node labels (and attributes before them), a class a graph."""
    import torch
    from torch_geometric.data import Data
    path = folder / f"tu-{name.upper()}"
    read = lambda what, **kind: np.loadtxt(path / f"{name.upper()}_{what}.txt", delimiter=",", **kind)
    edges = read("A", dtype=np.int64).T - 1
    of = read("graph_indicator", dtype=np.int64) - 1
    tags = np.unique(read("node_labels", dtype=np.int64), return_inverse=True)[1]
    x = np.eye(tags.max() + 1, dtype=np.float32)[tags]
    if (path / f"{name.upper()}_node_attributes.txt").exists():
        more = read("node_attributes", dtype=np.float32)
        x = np.concatenate([more.reshape(len(x), -1), x], 1)
    labels = np.unique(read("graph_labels", dtype=np.int64), return_inverse=True)[1]
    found = []
    for g in range(len(labels)):
        nodes = np.flatnonzero(of == g)
        own = edges[:, of[edges[0]] == g] - nodes[0]
        found.append(Data(x=torch.from_numpy(x[nodes]), edge_index=torch.from_numpy(own),
                          y=torch.tensor([int(labels[g])])))
    return found


def fold_of(labels, fold):
    """Ten folds with classes spread evenly: one tests, the next validates, the others train."""
    rng, at = np.random.default_rng(0), np.zeros(len(labels), dtype=int)
    order = np.concatenate([rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)])
    at[order] = np.arange(len(order)) % 10
    return np.where(at == fold, "test", np.where(at == (fold + 1) % 10, "val", "train"))


def graphs(folder, name, fold):
    """GIN on the graphs of a collection; the seed is the fold's number."""
    import pygnets
    import torch
    from torch_geometric.loader import DataLoader
    torch.manual_seed(fold)
    all_ = loaded(folder, name)
    part = fold_of(np.array([int(one.y) for one in all_]), fold)
    of = lambda which: [one for one, its in zip(all_, part) if its == which]
    loaders = [DataLoader(of("train"), batch_size=32, shuffle=True)]
    loaders += [[batch.to(DEVICE) for batch in DataLoader(of(which), batch_size=512)]
                for which in ("val", "test")]
    hidden, rate, decay = recipe_of(name)
    net = pygnets.Pooled(all_[0].x.shape[1], 2, hidden).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, weight_decay=decay)
    best = (-1.0, 0.0)
    for _ in range(FOLD_EPOCHS):
        net.train()
        for batch in loaders[0]:
            batch = batch.to(DEVICE)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(batch), batch.y).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            right = [torch.cat([net(batch).argmax(1) == batch.y for batch in loader])
                     for loader in loaders[1:]]
        best = max(best, tuple(part.float().mean().item() for part in right), key=lambda p: p[0])
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
    parser.add_argument("--jobs", type=int, default=1, help="runs of Lacis at a time, a thread each")
    parser.add_argument("--device", default="cpu", help="where PyG trains: cpu or cuda")
    parser.add_argument("--table")
    args = parser.parse_intermixed_args()
    if args.table:
        return table(json.loads(pathlib.Path(args.table).read_text())["rows"])
    import torch
    import torch_geometric
    torch.set_num_threads(1)
    global DEVICE
    DEVICE = args.device
    path, folder = pathlib.Path(args.output), pathlib.Path(args.folder)
    record = json.loads(path.read_text()) if path.exists() else {"rows": {}}
    versions = f"torch {torch.__version__}, PyG {torch_geometric.__version__}, {DEVICE}"
    if DEVICE == "cuda":
        versions = versions.replace("cuda", torch.cuda.get_device_name())
    record["recipe"] = {"epochs": EPOCHS, "epochs of folds": FOLD_EPOCHS, "dropout": DROPOUT,
                        "hidden, rate, weight decay": RECIPES}
    wanted = args.sets or PLANETOID + COLLECTIONS + OTHERS
    wanted = [(name, model) for entry in wanted for name, _, one in [entry.partition(":")]
              for model in ([one] if one else models_of(name))]
    for name, model in wanted:
        row = record["rows"].setdefault(f"{name}:{model}", {"lacis": [], "pyg": []})
        if args.only != "pyg":
            missing = range(len(row["lacis"]), args.seeds)
            one = lambda seed: ours(args.lacis, folder, name, model, seed)
            with ThreadPoolExecutor(args.jobs) as pool:
                for test in pool.map(one, missing):
                    row["lacis"].append(test)
                    path.write_text(json.dumps(record, indent=1) + "\n")
        for seed in range(args.seeds):
            if args.only != "lacis" and len(row["pyg"]) <= seed:
                row["pyg"].append(theirs(folder, name, model, seed))
                row["pyg_by"] = versions
            path.write_text(json.dumps(record, indent=1) + "\n")
        if not row["lacis"] or not row["pyg"]:
            continue
        a, s, b, t, off, bound = judged(row)
        print(f"{name} {model}: lacis {a:.4f} ± {s:.4f}, PyG {b:.4f} ± {t:.4f}, difference "
              f"{off:+.4f}, bound {bound:.4f}{'' if abs(off) <= bound else '  DIFFERENT'}", flush=True)


main()
