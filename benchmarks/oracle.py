#!/usr/bin/env python3
"""How far the planner's choice is from the best measured composition.

For graphs × models × widths: `lacis explain --measure` times every kept candidate of every layer,
the other layers as chosen. The ratio of a layer is what the chosen candidate took over what the
best took; ratios above 1.05 are measured a second time, and the smaller one counts.

    python3 benchmarks/oracle.py LACIS RECORD.json [--machine FILE]
"""
import json
import math
import subprocess
import sys

GRAPHS = {
    "rmat-sparse": "rmat:n=30k,e=120k,seed=5",
    "rmat-dense": "rmat:n=6k,e=600k,seed=6",
    "er": "er:n=20k,e=300k,seed=7",
    "grid": "grid:rows=150,cols=150",
    "sbm": "sbm:n=10k,e=200k,classes=8,features=8,seed=8",
}
MODELS = ["gcn", "gat", "gin", "sgc", "tagcn", "sage"]
WIDTHS = [(16, 128), (256, 32)]


def explain(lacis, graph, model, widths, more):
    features, hidden = widths
    heads = ["--heads", "1"] if model == "gat" else []
    command = [lacis, "explain", graph, "--features", str(features), "--classes", "16", "--split",
               "all", "--model", model, "--hidden", str(hidden), "--dropout", "0", "--measure",
               "--json", *heads, *more]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def ratios(explained):
    for layer in explained["layers"]:
        measured = {c["formula"]: c["measured_ms"] for c in layer["candidates"]
                    if c["measured_ms"] is not None}
        best = min(measured, key=measured.get)
        yield measured[layer["chosen"]] / measured[best], layer["chosen"], best, len(measured)


def main():
    lacis, record, *more = sys.argv[1:]
    rows = []
    for name, graph in GRAPHS.items():
        for model in MODELS:
            for widths in WIDTHS:
                found = list(ratios(explain(lacis, graph, model, widths, more)))
                if any(ratio > 1.05 for ratio, *_ in found):
                    again = list(ratios(explain(lacis, graph, model, widths, more)))
                    found = [min(pair) for pair in zip(found, again)]
                for layer, (ratio, chosen, best, count) in enumerate(found):
                    rows.append({"graph": name, "model": model, "widths": widths, "layer": layer + 1,
                                 "candidates": count, "ratio": ratio, "chosen": chosen,
                                 "best": best})
                worst = max(ratio for ratio, *_ in found)
                print(f"{name:12} {model:6} {widths[0]:4} -> {widths[1]:4}  {worst:.3f}", flush=True)
                save(record, rows)
    mean, worst = save(record, rows)
    print(f"geometric mean {mean:.3f}, worst {worst['ratio']:.3f} "
          f"({worst['graph']} {worst['model']} {worst['widths']} layer {worst['layer']})")


def save(record, rows):
    """What has been measured so far: an interrupted run loses nothing."""
    choices = [row for row in rows if row["candidates"] > 1] or rows
    mean = math.exp(sum(math.log(row["ratio"]) for row in choices) / len(choices))
    worst = max(choices, key=lambda row: row["ratio"])
    with open(record, "w") as file:
        json.dump({"mean": mean, "worst": worst["ratio"], "choices": rows}, file, indent=1)
    return mean, worst


main()
