#!/usr/bin/env python3
"""Training on sampled neighbourhoods, against PyTorch Geometric's NeighborLoader.

    python3 benchmarks/sampling.py prepare GRAPH.npz DATA.npz     # once: features, classes
    python3 benchmarks/sampling.py lacis LACIS DATA.npz -o RECORD.json
    python3 benchmarks/sampling.py pyg DATA.npz -o RECORD.json

GRAPH.npz is a SciPy CSR matrix. DATA.npz gets 100 features and 47 classes that follow from them;
60 batches of nodes have a label and train. Both train GraphSAGE (mean, 3 layers, hidden 128,
no dropout, Adam 0.003) on fan-outs 15, 10, 5 with batches of 1024 nodes, features sliced. Counted
are batches per second of whole training steps in the second epoch, the loss is that epoch's mean;
3 seeds each. PyG runs with 0, 1 and 2 workers; its best counts. CPU seconds per batch, of all
threads, are counted too: they say something even where the machine has other work; for Lacis they are the
difference between trainings of 4 and of 2 epochs. What is found is added to RECORD.json.
"""
import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import time

import numpy as np

FANOUTS, BATCH, BATCHES, HIDDEN, RATE = [15, 10, 5], 1024, 60, 128, 0.003
FEATURES, CLASSES, EPOCHS = 100, 47, 2


def prepare(args):
    graph = np.load(args.graph)
    n = int(graph["shape"][0])
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, FEATURES), dtype=np.float32)
    labels = (x @ rng.standard_normal((FEATURES, CLASSES), dtype=np.float32)).argmax(1)
    known = rng.permutation(n)[:BATCH * BATCHES]
    y = np.full(n, -1, dtype=np.int64)
    y[known] = labels[known]
    data = graph["data"] if "data" in graph else np.ones(len(graph["indices"]), np.float32)
    np.savez(args.data, adj_data=data.astype(np.float32), adj_indices=graph["indices"],
             adj_indptr=graph["indptr"], adj_shape=np.array([n, n]), attr_matrix=x, labels=y)


def record(args, key, found):
    path = pathlib.Path(args.out)
    all_of_it = json.loads(path.read_text()) if path.exists() else {}
    all_of_it.update({"graph": pathlib.Path(args.data).stem, "fanouts": FANOUTS, "batch": BATCH,
                      "batches": BATCHES, "model": "sage", "hidden": HIDDEN, "threads": 2})
    all_of_it[key] = found
    path.write_text(json.dumps(all_of_it, indent=1) + "\n")
    print(key, found)


def lacis(args):
    runs, cpu = [], {}
    for seed, count in [(0, 2 * EPOCHS)] + [(seed, EPOCHS) for seed in range(args.seeds)]:
        sample = "neighbor:" + ",".join(map(str, FANOUTS))
        command = [args.lacis, "train", args.data, "--model", "sage", "--layers", "3", "--hidden", HIDDEN,
                   "--dropout", 0, "--sample", sample, "--batch-size", BATCH, "--split", "all",
                   "--epochs", count, "--lr", RATE, "--weight-decay", 0, "--eval-every", 0,
                   "--seed", seed, "--threads", 2, "--no-save", "--json", "--edge-weights", "ignore"]
        command += ["--machine", args.machine] if args.machine else []
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = subprocess.run([str(word) for word in command], check=True, capture_output=True,
                               text=True).stdout.splitlines()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.setdefault(count, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        epochs = [e for e in map(json.loads, lines) if e["event"] == "epoch"]
        if count == EPOCHS:
            runs.append((BATCHES / epochs[-1]["ms"] * 1e3, epochs[-1]["loss"]))
    speeds, losses = zip(*runs)
    per_batch = (cpu[2 * EPOCHS] - cpu[EPOCHS]) / (EPOCHS * BATCHES)
    record(args, "lacis", {"batches_per_s": round(statistics.median(speeds), 2),
                           "cpu_s_per_batch": round(per_batch, 4),
                           "losses": [round(loss, 5) for loss in losses]})


def pyg(args):
    import torch
    import torch.nn.functional as F
    import torch_geometric
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.nn import GraphSAGE

    torch.set_num_threads(2)
    arrays = np.load(args.data)
    n = int(arrays["adj_shape"][0])
    # Entry (i, j) of a SciPy matrix is an edge from i to j, which Lacis reads alike.
    source = np.repeat(np.arange(n), np.diff(arrays["adj_indptr"]))
    edges = torch.from_numpy(np.stack([source, arrays["adj_indices"]]).astype(np.int64))
    data = Data(x=torch.from_numpy(arrays["attr_matrix"]), edge_index=edges,
                y=torch.from_numpy(arrays["labels"]))
    known = torch.nonzero(data.y >= 0).view(-1)

    def run(seed, workers, epochs):
        torch.manual_seed(seed)
        model = GraphSAGE(FEATURES, HIDDEN, 3, CLASSES)
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        loader = NeighborLoader(data, FANOUTS, known, batch_size=BATCH, shuffle=True,
                                num_workers=workers, persistent_workers=workers > 0)
        for _ in range(epochs):
            begun, busy, losses = time.perf_counter(), time.process_time(), []
            for batch in loader:
                optimizer.zero_grad()
                out = model(batch.x, batch.edge_index)[:batch.batch_size]
                loss = F.cross_entropy(out, batch.y[:batch.batch_size])
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            seconds, busy = time.perf_counter() - begun, time.process_time() - busy
        return BATCHES / seconds, sum(losses) / len(losses), busy / BATCHES

    if args.workers is not None:
        speed = run(0, args.workers, EPOCHS)[0]
        record(args, f"pyg, {args.workers} workers", {"batches_per_s": round(speed, 2)})
    else:
        runs = [run(seed, 0, EPOCHS) for seed in range(args.seeds)]
        losses, busy = [round(loss, 5) for _, loss, _ in runs], min(cpu for *_, cpu in runs)
        versions = f"torch {torch.__version__}, torch_geometric {torch_geometric.__version__}"
        record(args, "pyg", {"losses": losses, "cpu_s_per_batch": round(busy, 4),
                             "versions": versions})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(required=True)
    for name, run, words in [("prepare", prepare, ["graph", "data"]),
                             ("lacis", lacis, ["lacis", "data"]), ("pyg", pyg, ["data"])]:
        verb = verbs.add_parser(name)
        for word in words:
            verb.add_argument(word)
        verb.add_argument("-o", "--out", default="sampling.json")
        verb.add_argument("--machine")
        verb.add_argument("--seeds", type=int, default=3)
        verb.add_argument("--workers", type=int, help="time PyG with so many; else its losses")
        verb.set_defaults(run=run)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
