#!/usr/bin/env python3
"""How far the planner's choice is from the best measured composition.

Graphs from road- to proteins-like × models × widths, training and forward passes alone, some with
SENSEi's rules. `lacis explain --measure` times every kept candidate of every layer in turns, the
other layers as chosen. A layer's ratio is what the chosen candidate took over what the best took;
where it is above 1.05 all are measured again, up to two times, and the least time of each counts.

    python3 benchmarks/oracle.py LACIS RECORD.json [--machine FILE] [--seconds N]

A run goes on where the record ends; with --seconds it stops after about that long.
"""
import json
import math
import subprocess
import sys
import time

GRAPHS = {
    "road": "grid:rows=130,cols=130",
    "citation": "rmat:n=20k,e=130k,seed=51",
    "uniform": "er:n=12k,e=150k,seed=52",
    "community": "sbm:n=10k,e=180k,classes=8,features=8,seed=53",
    "proteins": "rmat:n=4k,e=350k,seed=54",
}
MODELS = ["gcn", "gat", "gin", "sgc", "tagcn", "sage"]
# Features and hidden columns; every graph and model has two of them, in turn.
WIDTHS = [(16, 128), (256, 32), (64, 602), (1024, 16), (32, 256), (602, 64), (128, 128)]
AGAIN = 2


def configurations():
    """(graph, model, widths, what), the same list each time."""
    turn = 0
    for graph in GRAPHS:
        for model in MODELS:
            for _ in range(2):
                yield graph, model, WIDTHS[turn % len(WIDTHS)], "training"
                turn += 3
            yield graph, model, WIDTHS[(turn + 1) % len(WIDTHS)], "forward"
    for graph in GRAPHS:
        for model in ["gcn", "gat"]:
            yield graph, model, WIDTHS[turn % len(WIDTHS)], "training, sensei"
            turn += 1


def explain(lacis, configuration, more):
    graph, model, (features, hidden), what = configuration
    command = [lacis, "explain", GRAPHS[graph], "--features", str(features), "--classes", "16",
               "--split", "all", "--model", model, "--hidden", str(hidden), "--dropout", "0",
               "--measure", "--json", *more]
    command += ["--heads", "1"] if model == "gat" else []
    command += ["--inference"] if "forward" in what else []
    command += ["--rules", "sensei"] if "sensei" in what else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])["layers"]


def times(layers):
    """The chosen formula and the milliseconds of each candidate, layer by layer."""
    for layer in layers:
        measured = {c["formula"]: c["measured_ms"] for c in layer["candidates"]
                    if c["measured_ms"] is not None}
        yield layer["chosen"], measured


def measured(lacis, configuration, more):
    """Rows of a record."""
    found = list(times(explain(lacis, configuration, more)))
    for _ in range(AGAIN):
        if all(of[chosen] <= 1.05 * min(of.values()) for chosen, of in found):
            break
        again = times(explain(lacis, configuration, more))
        found = [(chosen, {f: min(ms, other.get(f, ms)) for f, ms in of.items()})
                 for (chosen, of), (_, other) in zip(found, again)]
    graph, model, widths, what = configuration
    for number, (chosen, of) in enumerate(found, 1):
        best = min(of, key=of.get)
        yield {"graph": graph, "model": model, "widths": list(widths), "what": what,
               "layer": number, "candidates": len(of), "ratio": round(of[chosen] / of[best], 4),
               "chosen": chosen, "best": best, "chosen_ms": round(of[chosen], 4),
               "best_ms": round(of[best], 4), "worst_ms": round(max(of.values()), 4)}


def summary(rows):
    choices = [row for row in rows if row["candidates"] > 1]
    logs = [math.log(row["ratio"]) for row in choices]
    worst = max(choices, key=lambda row: row["ratio"], default=None)
    configurations = {(r["graph"], r["model"], tuple(r["widths"]), r["what"]) for r in rows}
    return {"configurations": len(configurations), "choices": len(choices),
            "mean": round(math.exp(sum(logs) / max(len(logs), 1)), 4),
            "worst": worst and worst["ratio"], "graphs": GRAPHS}


def key(row):
    return row["graph"], row["model"], tuple(row["widths"]), row["what"]


def arguments(rows_are):
    """The command, the record's path and rows so far, seconds, and flags for the command."""
    lacis, record, *more = sys.argv[1:]
    seconds = math.inf
    if "--seconds" in more:
        at = more.index("--seconds")
        seconds = float(more[at + 1])
        del more[at : at + 2]
    try:
        with open(record) as file:
            rows = json.load(file)[rows_are]
    except FileNotFoundError:
        rows = []
    return lacis, record, rows, seconds, more


def main():
    lacis, record, rows, seconds, more = arguments("choices")
    done, begun = {key(row) for row in rows}, time.time()
    # TAGCN has the most candidates, and takes a minute each: last.
    for configuration in sorted(dict.fromkeys(configurations()), key=lambda c: c[1] == "tagcn"):
        if configuration in done:
            continue
        if time.time() - begun > seconds:
            print("the time is over; the same command goes on")
            break
        new = list(measured(lacis, configuration, more))
        rows += new
        worst = max(row["ratio"] for row in new)
        graph, model, (features, hidden), what = configuration
        print(f"{graph:10} {model:6} {features:4} -> {hidden:4}  {what:17} {worst:.3f}", flush=True)
        with open(record, "w") as file:
            json.dump({**summary(rows), "choices": rows}, file, indent=1, ensure_ascii=False)
            file.write("\n")
    print(json.dumps({k: v for k, v in summary(rows).items() if k != "graphs"}))


if __name__ == "__main__":
    main()
