#!/usr/bin/env python3
"""What planning gains over the orders that PyG and DGL fix, on the same kernels.

`lacis explain --measure` times the candidates of each layer in turns. A library's order is the best
candidate among those that multiply in the order its code has:

    GCN   PyG: weights first.            DGL: weights first where they make rows shorter.
    SAGE  PyG: neighbours first.         DGL: weights first where they make rows shorter.
    GIN, SGC  both: neighbours first.    GAT  both: weights first.

(PyG 2.8's `GCNConv`, `SAGEConv`, `GINConv`, `SGConv`, `GATConv`; DGL 2's `GraphConv`, `SAGEConv`,
`GINConv`, `SGConv`, `GATConv`.) Times are sums over the layers; a ratio above 1 is gained. GCN and
GAT also meet a dense graph (415 edges a node; SENSEi gains most on such), SAGE also batches of
sampled neighbours.

    python3 benchmarks/orders.py LACIS RECORD.json [--machine FILE] [--seconds N]

A run goes on where the record ends; with --seconds it stops after about that long.
"""
import json
import math
import re
import subprocess
import sys
import time

from oracle import GRAPHS, arguments

MODELS = ["gcn", "gat", "sage", "gin", "sgc"]
WIDTHS = [(32, 1024), (1024, 32), (128, 128), (602, 256)]
CLASSES = 16
DENSE = {"dense": "rmat:n=10k,e=5M,seed=55"}
SAMPLED = ["--sample", "neighbor:10,10", "--batch-size", "1024"]
INPUT = r"(X|relu\(H\d+\)|elu\(H\d+\))"


def weights_first(model, formula):
    if model == "gat":
        return re.match(rf"attend\([^,]*, {INPUT}·W", formula) is not None
    weight = r"W\d*_lin_l" if model == "sage" else r"W"
    return re.search(rf"(?<!top\d)\({INPUT}·{weight}", formula) is not None


def neighbours_first(model, formula):
    if model == "gin":
        return formula.count("W") == 1 and not weights_first(model, formula)
    return not weights_first(model, formula)


def orders(model, shrinks):
    """The orders of PyG and of DGL, for a layer that makes rows shorter or does not."""
    pyg = weights_first if model in ("gcn", "gat") else neighbours_first
    if model in ("gcn", "sage"):
        return pyg, weights_first if shrinks else neighbours_first
    return pyg, pyg


def configurations():
    for graph in GRAPHS:
        for model in MODELS:
            for widths in WIDTHS:
                for what in ["training", "forward"]:
                    yield graph, model, widths, what
    for model in ["gat", "gcn"]:
        for widths in [(32, 1024), (128, 128), (32, 2048)]:
            for what in ["training", "forward"]:
                yield "dense", model, widths, what
    for graph in ["citation", "uniform", "community"]:
        for widths in WIDTHS:
            yield graph, "sage", widths, "sampled"


def measured(lacis, configuration, more):
    graph, model, (features, hidden), what = configuration
    command = [lacis, "explain", {**GRAPHS, **DENSE}[graph], "--features", str(features),
               "--classes", str(CLASSES), "--split", "all", "--model", model,
               "--hidden", str(hidden), "--dropout", "0", "--measure", "--json", *more]
    command += ["--heads", "1"] if model == "gat" else []
    command += ["--inference"] if what == "forward" else []
    command += SAMPLED if what == "sampled" else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    layers = json.loads(done.stdout.splitlines()[-1])["layers"]
    sizes = [features, *[hidden] * (len(layers) - 1), CLASSES]
    planned, theirs = 0.0, [0.0, 0.0]
    for at, layer in enumerate(layers):
        times = {c["formula"]: c["measured_ms"] for c in layer["candidates"]
                 if c["measured_ms"] is not None}
        planned += times[layer["chosen"]]
        for who, order in enumerate(orders(model, sizes[at] > sizes[at + 1])):
            theirs[who] += min(ms for formula, ms in times.items() if order(model, formula))
    return {"graph": graph, "model": model, "widths": [features, hidden], "what": what,
            "planned_ms": round(planned, 4), "pyg_order_ms": round(theirs[0], 4),
            "dgl_order_ms": round(theirs[1], 4)}


def summary(rows):
    def over(model, order, what):
        return [row[order] / row["planned_ms"] for row in rows
                if row["model"] == model and row["what"] == what]

    found = {}
    for model in MODELS:
        for what in ["training", "forward", "sampled"]:
            for order in ["pyg_order_ms", "dgl_order_ms"]:
                ratios = over(model, order, what)
                if ratios:
                    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
                    found[f"{model}, {what}, over {order[:3]}"] = {
                        "mean": round(mean, 3), "most": round(max(ratios), 2),
                        "least": round(min(ratios), 3)}
    return found


def main():
    lacis, record, rows, seconds, more = arguments("rows")
    done = {(r["graph"], r["model"], tuple(r["widths"]), r["what"]) for r in rows}
    begun = time.time()
    for configuration in configurations():
        if configuration in done:
            continue
        if time.time() - begun > seconds:
            print("the time is over; the same command goes on")
            break
        rows.append(measured(lacis, configuration, more))
        print(rows[-1], flush=True)
        with open(record, "w") as file:
            graphs = {**GRAPHS, **DENSE}
            json.dump({"summary": summary(rows), "graphs": graphs, "rows": rows}, file, indent=1)
            file.write("\n")
    for what, found in summary(rows).items():
        print(f"{what:28} {found}")


if __name__ == "__main__":
    main()
