#!/usr/bin/env python3
"""Does Lacis predict links as well as PyTorch Geometric?

Both: two GCN layers (128, then 64 columns), dot-product decoder, Adam 0.01, no dropout, features
normalised by rows, 5 % of the edges validate and 10 % test, negatives anew each epoch, the test AUC
of the epoch with the best validation AUC. Splits are each engine's own, by the seed.

    python3 benchmarks/links.py LACIS DATA... -o RECORD.json [--seeds N] [--epochs N]

DATA are Planetoid folders. What is in the record already is not run again. Exit code 1 where the means differ by more than 2·√(s₁²/n + s₂²/n).
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
import torch_geometric
import torch_geometric.transforms as T
from scipy.stats import rankdata
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GCNConv
from torch_geometric.utils import negative_sampling

HIDDEN, OUT, RATE = 128, 64, 0.01


class Encoder(torch.nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.first, self.second = GCNConv(inputs, HIDDEN), GCNConv(HIDDEN, OUT)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def auc_of(labels, found):
    true = labels.cpu().numpy() > 0.5
    positives, negatives = true.sum(), (~true).sum()
    ranks = rankdata(found.cpu().numpy())[true].sum()
    return float((ranks - positives * (positives + 1) / 2) / (positives * negatives))


def scores(z, pairs):
    return (z[pairs[0]] * z[pairs[1]]).sum(-1)


def theirs(data, seed, epochs, device):
    torch.manual_seed(seed)
    split = T.RandomLinkSplit(num_val=0.05, num_test=0.1, is_undirected=True,
                              add_negative_train_samples=False)
    train, val, test = split(T.NormalizeFeatures()(data))
    train, val, test = (part.to(device) for part in (train, val, test))
    net = Encoder(data.x.shape[1]).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    best = (-1, -1)
    for _ in range(epochs):
        net.train()
        optimizer.zero_grad()
        z = net(train.x, train.edge_index)
        false = negative_sampling(train.edge_index, train.num_nodes,
                                  train.edge_label_index.shape[1])
        pairs = torch.cat([train.edge_label_index, false], 1)
        labels = torch.zeros(pairs.shape[1], device=device)
        labels[:train.edge_label_index.shape[1]] = 1
        F.binary_cross_entropy_with_logits(scores(z, pairs), labels).backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            z = net(train.x, train.edge_index)
            auc = [auc_of(part.edge_label, scores(z, part.edge_label_index))
                   for part in (val, test)]
        if auc[0] > best[0]:
            best = auc
    return best[1]


def ours(lacis, folder, seed, epochs):
    command = [lacis, "train", folder, "--task", "link", "--hidden", HIDDEN, "--embedding", OUT,
               "--dropout", 0, "--weight-decay", 0, "--lr", RATE, "--epochs", epochs,
               "--row-normalize", "--seed", seed, "--no-save", "--json", "--threads", 1]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])["test"]


def opened(folder):
    with tempfile.TemporaryDirectory() as root:
        raw = pathlib.Path(root) / "set/raw"
        raw.mkdir(parents=True)
        for file in pathlib.Path(folder).glob("ind.*"):
            (raw / file.name).write_bytes(file.read_bytes())
        name = next(raw.glob("ind.*.x")).name.split(".")[1]
        raw.parent.rename(pathlib.Path(root) / name)
        return name, Planetoid(root, name)[0]


def judged(row):
    spread = {who: statistics.stdev(row[who]) for who in ("lacis", "pyg")}
    mean = {who: statistics.mean(row[who]) for who in ("lacis", "pyg")}
    bound = 2 * math.sqrt(sum(s * s / len(row[who]) for who, s in spread.items()))
    off = mean["lacis"] - mean["pyg"]
    row.update({"difference": off, "bound": bound, "alike": abs(off) <= bound})
    print(f"{row['data']}: lacis {mean['lacis']:.4f} ± {spread['lacis']:.4f}, PyG "
          f"{mean['pyg']:.4f} ± {spread['pyg']:.4f}, difference {off:+.4f}, bound {bound:.4f}",
          flush=True)
    return row["alike"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lacis")
    parser.add_argument("data", nargs="+")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--only", choices=["lacis", "pyg"], help="one engine alone")
    parser.add_argument("--device", default="cpu", help="where PyG trains: cpu or cuda")
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    path, good = pathlib.Path(args.output), True
    rows = json.loads(path.read_text()) if path.exists() else []
    for folder in args.data:
        name, data = opened(folder)
        row = next((row for row in rows if row["data"] == name), None)
        if row is None:
            row = {"data": name, "metric": "test roc-auc", "epochs": args.epochs, "lacis": [],
                   "pyg": []}
            rows.append(row)
        for seed in range(args.seeds):
            if args.only != "pyg" and len(row["lacis"]) <= seed:
                row["lacis"].append(ours(args.lacis, folder, seed, args.epochs))
            if args.only != "lacis" and len(row["pyg"]) <= seed:
                row["pyg"].append(theirs(data, seed, args.epochs, args.device))
                row["pyg_by"] = f"torch {torch.__version__}, PyG {torch_geometric.__version__}"
            path.write_text(json.dumps(rows, indent=1) + "\n")
        if min(len(row["lacis"]), len(row["pyg"])) > 1:
            good &= judged(row)
            path.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(0 if good else 1)


main()
