#!/usr/bin/env python3
"""Does Lacis learn as PyTorch Geometric does?

For each model, and for options of models (`gat:out-heads`): the same first weights, no dropout, the
same optimizer; the losses of some epochs are compared, and weights go through `model.safetensors`
both ways.

    python3 benchmarks/parity.py LACIS DATA [MODEL...]

DATA is a Planetoid folder that both read (`cora`). Prints a line per model; exit code 1 if a loss
differs by more than 1e-4 (relative, above 1).
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import (APPNP, ChebConv, GATConv, GATv2Conv, GCN2Conv, GCNConv, GINConv,
                                ResGatedGraphConv, SAGEConv, SGConv, TAGConv)
from torch_geometric.nn.models import GAT, GCN, GIN

EPOCHS, RATE, HIDDEN, HEADS = 20, 0.01, 16, 4


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", data[:8])
    head = json.loads(data[8:8 + size])
    head.pop("__metadata__", None)
    tensors = {}
    for name, info in head.items():
        begin, end = (8 + size + at for at in info["data_offsets"])
        array = np.frombuffer(data[begin:end], dtype=np.float32)
        tensors[name] = torch.tensor(array.reshape(info["shape"]))
    return tensors



class Stack(torch.nn.Module):
    """Convolutions with a function between them, named as Lacis names its weights."""

    def __init__(self, convs, function):
        super().__init__()
        self.convs, self.function = torch.nn.ModuleList(convs), function

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = self.function(conv(x, edge_index))
        return self.convs[-1](x, edge_index)


class Linears(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        pairs = zip(sizes, sizes[1:])
        self.lins = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairs)

    def forward(self, x, edge_index=None):
        for lin in self.lins[:-1]:
            x = lin(x).relu()
        return self.lins[-1](x)


class Predictor(Linears):
    """APPNP: linear layers, then propagation."""

    def __init__(self, sizes, alpha=0.1):
        super().__init__(sizes)
        self.alpha = alpha

    def forward(self, x, edge_index):
        return APPNP(10, self.alpha)(super().forward(x), edge_index)


class Deep(Linears):
    """GCNII between two linear layers."""

    def __init__(self, a, b, layers, alpha=0.1, theta=0.5, **options):
        super().__init__([a, HIDDEN, b])
        convs = [GCN2Conv(HIDDEN, alpha, theta, layer + 1, **options) for layer in range(layers)]
        self.convs = torch.nn.ModuleList(convs)

    def forward(self, x, edge_index):
        first = x = self.lins[0](x).relu()
        for conv in self.convs:
            x = conv(x, first, edge_index).relu()
        return self.lins[1](x)


def models(a, b):
    h = HIDDEN
    gat = lambda layer: Stack([layer(a, h // HEADS, heads=HEADS), layer(h, b, heads=1)], F.elu)
    two = lambda layer: Stack([layer(a, h), layer(h, b)], F.relu)
    return {
        "gcn": two(GCNConv),
        "sage": two(SAGEConv),
        "gin": two(lambda i, o: GINConv(Linears([i, o]))),
        "gat": gat(GATConv),
        "gatv2": gat(GATv2Conv),
        "sgc": SGConv(a, b, K=2),
        "tagcn": two(TAGConv),
        "cheb": two(lambda i, o: ChebConv(i, o, K=3)),
        "appnp": Predictor([a, h, b]),
        "gcn2": Deep(a, b, 2),
        "gatedgcn": two(ResGatedGraphConv),
        "mlp": Linears([a, h, b]),
    }


def options(a, b):
    """Networks with other options than usual, and the flags that ask for them."""
    h, basic = HIDDEN, dict(act="elu", heads=HEADS)
    one = GAT(a, h, 2, b, **basic)
    one.convs[-1] = GATConv(h, b, heads=1)
    slope = lambda i, o, n: GATConv(i, o, heads=n, negative_slope=0.05)
    return {
        "gat:models": (one, []),
        "gat:out-heads": (GAT(a, h, 2, b, **basic), ["--out-heads", HEADS]),
        "gatv2:out-heads": (GAT(a, h, 2, b, v2=True, **basic), ["--out-heads", HEADS]),
        "gat:slope": (Stack([slope(a, h // HEADS, HEADS), slope(h, b, 1)], F.elu),
                      ["--negative-slope", 0.05]),
        "gcn:no-normalize": (Stack([GCNConv(i, o, normalize=False) for i, o in ((a, h), (h, b))],
                                   F.relu), ["--no-normalize"]),
        "gcn:jumping": (GCN(a, h, 3, b, jk="cat"), ["--layers", 3, "--jumping"]),
        "gcn:jumping-max": (GCN(a, h, 3, b, jk="max"), ["--layers", 3, "--jumping=max"]),
        "gcn:layer-norm": (GCN(a, h, 2, b, norm="layer_norm", norm_kwargs={"mode": "node"}),
                           ["--norm", "layer"]),
        "gin:mlp-layers": (GIN(a, h, 2, b, norm=None), ["--mlp-layers", 2]),
        "appnp:alpha": (Predictor([a, h, b], 0.3), ["--teleport", 0.3]),
        "gcn2:alpha-theta": (Deep(a, b, 2, 0.3, 1.5), ["--teleport", 0.3, "--theta", 1.5]),
        "gcn2:weights": (Deep(a, b, 2, shared_weights=False), ["--no-shared-weights"]),
    }


def run_lacis(lacis, data, model, folder, epochs):
    name, flags = model
    heads = ["--heads", HEADS] if name in ("gat", "gatv2") else []
    command = [lacis, "train", data, "--model", name, "--hidden", HIDDEN, *heads, "--dropout", 0,
               "--weight-decay", 0, "--lr", RATE, "--epochs", epochs, "--eval-every", 0, "--json",
               "--out", folder, *flags]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [line["loss"] for line in lines if line["event"] == "epoch"]


def compare(lacis, data, name, net, graph):
    (net, flags), (x, y, edge_index, train) = net, graph
    model = name.split(":")[0], flags
    with tempfile.TemporaryDirectory() as folder:
        run_lacis(lacis, data, model, f"{folder}/first", 0)
        ours = run_lacis(lacis, data, model, f"{folder}/run", EPOCHS)
        first = read_safetensors(f"{folder}/first/model.safetensors")
        last = read_safetensors(f"{folder}/run/model.safetensors")
    state = net.state_dict()
    net.load_state_dict({k: v.reshape(state[k].shape) for k, v in first.items()}, strict=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    theirs = []
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x, edge_index)[train], y[train])
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    off = max(abs(a - b) / max(1, abs(b)) for a, b in zip(ours, theirs))
    state = net.state_dict()
    weights = max((last[k].reshape(v.shape) - v).abs().max().item() for k, v in state.items())
    good = off < 1e-4
    print(f"{name:16} loss {ours[0]:.5f} -> {ours[-1]:.5f} (PyG {theirs[-1]:.5f}), losses differ by "
          f"{off:.1e}, weights by {weights:.1e}  {'ok' if good else 'DIFFERENT'}", flush=True)
    return good


def main():
    lacis, data = sys.argv[1], sys.argv[2]
    from torch_geometric.datasets import Planetoid
    with tempfile.TemporaryDirectory() as root:
        raw = pathlib.Path(root) / "set/raw"
        raw.mkdir(parents=True)
        for file in pathlib.Path(data).glob("ind.*"):
            (raw / file.name).write_bytes(file.read_bytes())
        name = next(raw.glob("ind.*.x")).name.split(".")[1]
        raw.parent.rename(pathlib.Path(root) / name)
        set_ = Planetoid(root, name)[0]
    graph = (set_.x, set_.y, set_.edge_index, set_.train_mask)
    sizes = set_.x.shape[1], int(set_.y.max()) + 1
    nets = {name: (net, []) for name, net in models(*sizes).items()} | options(*sizes)
    wanted = sys.argv[3:] or list(nets)
    torch.set_num_threads(2)
    results = [compare(lacis, data, name, nets[name], graph) for name in wanted]
    sys.exit(0 if all(results) else 1)


main()
