#!/usr/bin/env python3
"""Layers and epochs so small that the calls themselves take the time, with and without Lacis.

usage: small.py [--models gcn,sage,gin,gat,gatv2,transformer] [--rounds 30] [--out RECORD.json]

Epochs: a random graph of Cora's sizes (2,708 nodes, 10,556 edges, 1,433 features, 7 classes), two
layers with 16 columns between them; ten epochs a turn, contestants in turns. Calls: one layer of 4
columns on 8 nodes and 16 edges, where no kernel has anything to do, so that all of the time is
what a call costs; `call_us` without gradients, `step_us` with the gradient of a sum.
"""
import argparse
import json
import pathlib
import statistics
import time

import lacis
import plugin
import torch
import torch_geometric

CORA = (2708, 10556, 1433, 7)
MODES = ("edge_index", "lacis", "optimize")
MODELS = "gcn,sage,gin,gat,gatv2,transformer"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out")
    return parser.parse_args()


def graph(n, e, seed=0):
    made = torch.Generator().manual_seed(seed)
    half = torch.randint(0, n, (2, e // 2), generator=made)
    return torch.cat([half, half.flip(0)], 1)


def contestants(model):
    """The same network in every mode."""
    n, e, features, classes = CORA
    loaded = (n, None, None, graph(n, e))
    torch.manual_seed(0)
    x, y = torch.randn(n, features), torch.randint(0, classes, (n,))
    sizes = (features, 16, classes)
    return {mode: plugin.Contestant(mode, model, sizes, (loaded, x, y)) for mode in MODES}


def switched(mode):
    """Patches, or not."""
    return lacis.patch() if mode != "edge_index" else lacis.unpatch()


def epochs(model, rounds):
    """Milliseconds an epoch, by mode."""
    nets, found = contestants(model), {mode: [] for mode in MODES}
    for turn in range(rounds + 1):
        for mode, one in nets.items():
            switched(mode)
            for _ in range(10):
                one._epoch()
            if turn:
                found[mode].append(statistics.median(one.times[-10:]))
    lacis.unpatch()
    return {mode: statistics.median(times) for mode, times in found.items()}


def calls(model, rounds):
    """Microseconds a call, and a call with its gradient, by mode."""
    index, x = graph(8, 16), torch.randn(8, 4)
    layers = {mode: plugin.network(model, (4, 8, 4))[0] for mode in MODES}
    lacis.optimize(layers["optimize"])
    lacis.unpatch()
    own = x.clone().requires_grad_()

    def call(layer):
        with torch.no_grad():
            layer(x, index)

    found = {mode: ([], []) for mode in MODES}
    for _ in range(rounds + 1):
        for mode, layer in layers.items():
            switched(mode)
            found[mode][0].append(timed(lambda: call(layer)))
            found[mode][1].append(timed(lambda: layer(own, index).sum().backward()))
    lacis.unpatch()
    return {mode: [statistics.median(times[1:]) for times in both] for mode, both in found.items()}


def timed(f, times=50):
    """Microseconds of one of many, the first few aside."""
    for _ in range(5):
        f()
    started = time.perf_counter()
    for _ in range(times):
        f()
    return (time.perf_counter() - started) / times * 1e6


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    lines = []
    for model in options.models.split(","):
        ms, us = epochs(model, options.rounds), calls(model, options.rounds)
        for mode in MODES:
            lines.append({
                "model": model, "mode": mode, "epoch_ms": round(ms[mode], 3),
                "speedup": round(ms["edge_index"] / ms[mode], 2),
                "call_us": round(us[mode][0], 1), "step_us": round(us[mode][1], 1)})
            print(json.dumps(lines[-1]), flush=True)
    record = {"machine": plugin.machine(), "threads": options.threads,
              "torch": torch.__version__, "torch_geometric": torch_geometric.__version__,
              "lines": lines}
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
