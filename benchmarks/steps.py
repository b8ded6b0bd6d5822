#!/usr/bin/env python3
"""How far the planner's prediction of each step is from what the step takes.

`lacis explain --measure` times the steps of the plan that it chose. A run takes networks of the
oracle's graphs and counts the steps that take more than 50 microseconds.

    python3 benchmarks/steps.py LACIS RECORD.json [--machine FILE] [--seconds N]

A run goes on where the record ends; with --seconds it stops after about that long.
"""
import collections
import json
import subprocess
import time

from oracle import GRAPHS, arguments

MODELS = ["gcn", "sage", "gin", "gat", "sgc"]
WIDTHS = [(128, 64), (602, 256), (32, 128)]
CLASSES = "16"
LEAST_MS, FACTOR = 0.05, 1.5


def configurations():
    for widths in WIDTHS:
        for model in MODELS:
            for graph in GRAPHS:
                yield graph, model, *widths


def steps(lacis, more, configuration):
    graph, model, features, hidden = configuration
    command = [lacis, "explain", GRAPHS[graph], "--features", str(features), "--classes", CLASSES,
               "--split", "all", "--model", model, "--hidden", str(hidden), "--dropout", "0",
               "--measure", "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])["steps"]
    names = ("operator", "kernel", "phase", "formula", "predicted_ms", "measured_ms")
    return [{name: step[name] for name in names} for step in found if step["measured_ms"]]


def far(step):
    ratio = step["measured_ms"] / step["predicted_ms"]
    return max(ratio, 1 / ratio) > FACTOR


def tell(record):
    by = collections.defaultdict(list)
    for result in record:
        for step in result["steps"]:
            if step["measured_ms"] > LEAST_MS:
                by[step["operator"]].append(step)
    for operator, those in sorted(by.items()):
        ratios = sorted(step["measured_ms"] / step["predicted_ms"] for step in those)
        near = sum(not far(step) for step in those)
        print(f"{operator:16} {near:4} of {len(those):4} within {FACTOR}, "
              f"measured / predicted {ratios[0]:.2f} to {ratios[-1]:.2f}, median {ratios[len(ratios) // 2]:.2f}")
    every = [step for those in by.values() for step in those]
    if every:
        near = sum(not far(step) for step in every)
        print(f"{near} of {len(every)} steps above {LEAST_MS} ms: {100 * near / len(every):.1f} %")


def main():
    lacis, path, record, seconds, more = arguments("networks")
    have = {tuple(result["configuration"]) for result in record}
    begun = time.monotonic()
    for configuration in configurations():
        if configuration in have:
            continue
        if time.monotonic() - begun > seconds:
            break
        record.append({"configuration": configuration, "steps": steps(lacis, more, configuration)})
        with open(path, "w") as file:
            lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in record)
            file.write(f'{{"networks": [\n{lines}\n]}}\n')
    tell(record)


if __name__ == "__main__":
    main()
