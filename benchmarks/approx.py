"""Approximate training end to end: accuracy and time, exact against rsc and adaptive.

    python3 benchmarks/approx.py --lacis target/release/lacis --data sbm:n=50000,e=10M,... \
        --models gcn,sage --budgets 0.1,0.3 --seeds 3 --epochs 100 -o RECORD.json
    python3 benchmarks/approx.py --plot RECORD.json -o docs/approximation.svg

Runs take turns, seed by seed, each in a process of its own. A record holds, per model, policy and
budget: test accuracies, median milliseconds of an epoch before the switch, seconds of training, what
was kept, measured errors and Amdahl's ceiling; and per evaluated epoch the time and the accuracy on
validation nodes, of the first seed. It is written after every seed; the same command goes on with
the seeds that it does not have.

A policy may name what it is to do without, after the paper's ablations: `rsc+uniform` gives all layers the same
budget, `rsc+resampled` chooses pairs anew in every epoch, `rsc+unswitched` is not exact at the end, `rsc+unbound` never falls
back to exact products, as published; so for `adaptive`. With hubs and without is a matter of --data: `sbm:…,skew=4` has large
ones, `skew=1` none. GCNII is the model `gcn2`; batches of GraphSAINT are `--more="--sample saint:2 --batch-size 2000"`.

With --jobs N so many runs go on at a time, with --untimed one beside other work: their accuracies count, their times do
not, and the record keeps none.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor


VARIANTS = {
    "uniform": ["--approx-allocation", "uniform"],
    "resampled": ["--approx-interval", "1"],
    "unswitched": ["--approx-switch", "1"],
    "unbound": ["--approx-bound", "inf"],
}


def run(args, model, policy, budget, seed):
    command = [args.lacis, "train", args.data, "--model", model, "--layers", str(args.layers),
               "--hidden", str(args.hidden), "--epochs", str(args.epochs), "--seed", str(seed),
               "--split", "random", "--eval-every", str(args.eval_every), "--no-save", "--json",
               "--dropout", str(args.dropout), *args.more.split()]
    if args.machine:
        command += ["--machine", args.machine]
    if policy != "exact":
        name, *variants = policy.split("+")
        command += ["--approx", name, "--approx-budget", str(budget)]
        command += [flag for variant in variants for flag in VARIANTS[variant]]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    events = [json.loads(line) for line in lines]
    done = next(event for event in events if event["event"] == "done")
    epochs = [event for event in events if event["event"] == "epoch"]
    switch = int(0.8 * args.epochs)
    before = [event["ms"] for event in epochs[1:switch]]
    spent, curve = 0.0, []
    for event in epochs:
        spent += event["ms"] / 1e3
        if event["val"] is not None:
            curve.append([round(spent, 3), event["val"]])
    approx = done.get("approx") or {}
    return {
        "seed": seed, "test": done["test"], "val": done["val"],
        "epoch_ms": statistics.median(before), "train_s": done["train_s"], "curve": curve,
        "ceiling": approx.get("ceiling"), "budget_ceiling": approx.get("budget_ceiling"),
        "speedup": approx.get("speedup"),
        "on": approx.get("on"),
        "kept": [layer["kept"] for layer in approx.get("layers", [])],
        "error": [layer["error"] for layer in approx.get("layers", [])],
        "fallbacks": [layer["fallbacks"] for layer in approx.get("layers", [])],
        "exact_epochs": [layer["exact_epochs"] for layer in approx.get("layers", [])],
    }


def summary(runs):
    tests = [r["test"] for r in runs]
    found = {
        "test": statistics.mean(tests),
        "spread": statistics.stdev(tests) if len(tests) > 1 else None,
    }
    if all("epoch_ms" in run for run in runs):
        found["epoch_ms"] = statistics.median(r["epoch_ms"] for r in runs)
        found["train_s"] = statistics.median(r["train_s"] for r in runs)
    return found


def is_timed(args):
    return args.jobs == 1 and not args.untimed


def write(path, record):
    with open(path + ".new", "w") as file:
        json.dump(record, file, indent=1)
    os.replace(path + ".new", path)


def contestant(record, args, model, policy, budget):
    """The result of a contestant in the record, made where there is none."""
    key = {"timed": is_timed(args), "data": args.data, "model": model, "layers": args.layers, "hidden": args.hidden,
           "epochs": args.epochs, "more": args.more, "policy": policy, "budget": budget}
    for result in record["results"]:
        if all(result.get(name, True) == value for name, value in key.items()):
            return result
    record["results"].append({**key, "curve": [], "runs": []})
    return record["results"][-1]


def points(runs, exact):
    """How many hundredths a run is above the exact one of the same seed: the mean and its error."""
    of = {run["seed"]: run["test"] for run in exact}
    apart = [100 * (run["test"] - of[run["seed"]]) for run in runs if run["seed"] in of]
    error = statistics.stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else None
    return {"points": statistics.mean(apart) if apart else None, "points_error": error}


def summarise(results):
    exact = summary(results[0]["runs"])
    for result in results:
        own = summary(result["runs"])
        result.update(own, **points(result["runs"], results[0]["runs"]))
        if "epoch_ms" in own:
            result.update(epoch_times=exact["epoch_ms"] / own["epoch_ms"],
                          run_times=exact["train_s"] / own["train_s"])


def together(args, record, contestants):
    """Accuracies of all models, seeds and contestants that are missing, some runs at a time."""
    wanted = []
    for model in args.models.split(","):
        for policy, budget in contestants:
            result = contestant(record, args, model, policy, budget)
            have = {run["seed"] for run in result["runs"]}
            wanted += [(seed, model, policy, budget) for seed in range(args.seeds)
                       if seed not in have]
    end = time.monotonic() + args.seconds

    def one(of):
        seed, model, policy, budget = of
        return None if time.monotonic() > end else run(args, model, policy, budget, seed)

    with ThreadPoolExecutor(args.jobs) as pool:
        for (seed, model, policy, budget), found in zip(sorted(wanted), pool.map(one, sorted(wanted))):
            if found is None:
                continue
            for name in ("curve", "epoch_ms", "train_s", "speedup"):
                del found[name]
            contestant(record, args, model, policy, budget)["runs"].append(found)
            write(args.output, record)
            print(model, policy, budget, seed, f"test {found['test']:.4f}", flush=True)
    for model in args.models.split(","):
        results = [contestant(record, args, model, *one) for one in contestants]
        if all(result["runs"] for result in results):
            summarise(results)
    write(args.output, record)


def measure(args):
    record = json.load(open(args.output)) if os.path.exists(args.output) else {"results": []}
    contestants = [("exact", 1.0)] + [(p, float(b)) for b in args.budgets.split(",")
                                      for p in args.policies.split(",")]
    if not is_timed(args):
        return together(args, record, contestants)
    end = time.monotonic() + args.seconds
    for model in args.models.split(","):
        results = [contestant(record, args, model, *one) for one in contestants]
        for seed in range(args.seeds):
            if all(any(run["seed"] == seed for run in result["runs"]) for result in results):
                continue
            if time.monotonic() > end:
                print("time is over; the same command goes on")
                return
            # All take their turns, or none is kept: times of one hour are not compared with another's.
            rounds = []
            for policy, budget in contestants:
                rounds.append(run(args, model, policy, budget, seed))
                print(model, policy, budget, seed, f"test {rounds[-1]['test']:.4f}",
                      f"epoch {rounds[-1]['epoch_ms']:.1f} ms", flush=True)
            for result, one in zip(results, rounds):
                curve = one.pop("curve")
                result["curve"] = result["curve"] or curve
                result["runs"] = [r for r in result["runs"] if r["seed"] != seed] + [one]
            summarise(results)
            write(args.output, record)


COLOURS = {"exact": "#444444", "rsc": "#c2571a", "adaptive": "#1a6fc2"}


def plot(args):
    """Accuracy against time: a panel for each data set and model, a line for each contestant."""
    results = json.load(open(args.plot))["results"]
    panels = {}
    for result in results:
        if len(result.get("curve", [])) > 1 and "epoch_ms" in result:
            panels.setdefault((result["data"], result["model"]), []).append(result)
    width, height, gap = 360, 240, 60
    svg = []
    for at, ((data, model), lines) in enumerate(panels.items()):
        left, top = gap + at % 2 * (width + gap), gap + at // 2 * (height + 1.4 * gap)
        last = max(line["curve"][-1][0] for line in lines)
        values = [value for line in lines for _, value in line["curve"]]
        low, high = min(values), max(values)
        high = high if high > low else low + 1

        def x(seconds):
            return left + width * seconds / last

        def y(value):
            return top + height * (1 - (value - low) / (high - low))

        title = f"{model}, {data.split(':')[-1].split(',classes')[0]}"
        svg.append(f'<text x="{left}" y="{top - 12}" font-weight="bold">{title}</text>')
        svg.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" '
                   'fill="none" stroke="#bbbbbb"/>')
        svg.append(f'<text x="{left - 4}" y="{top + 10}" text-anchor="end">{high:.2f}</text>')
        svg.append(f'<text x="{left - 4}" y="{top + height}" text-anchor="end">{low:.2f}</text>')
        svg.append(f'<text x="{left + width}" y="{top + height + 16}" text-anchor="end">'
                   f"{last:.1f} s of training</text>")
        for row, line in enumerate(lines):
            colour = COLOURS[line["policy"].split("+")[0]]
            dash = ' stroke-dasharray="5 3"' if line["budget"] == 0.3 else ""
            points = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in line["curve"])
            svg.append(f'<polyline points="{points}" fill="none" stroke="{colour}" '
                       f'stroke-width="1.6"{dash}/>')
            name = line["policy"] if line["policy"] == "exact" else \
                f'{line["policy"]} {line["budget"]}'
            svg.append(f'<text x="{left + width - 6}" y="{top + height - 8 - 14 * row}" '
                       f'text-anchor="end" fill="{colour}">{name}: {line["test"]:.3f}, '
                       f'{line["epoch_ms"]:.0f} ms</text>')
    rows = (len(panels) + 1) // 2
    columns = min(2, len(panels))
    size = (columns * (width + gap) + gap, gap + rows * (height + 1.4 * gap))
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]:.0f}" '
            'font-family="sans-serif" font-size="12">')
    with open(args.output, "w") as file:
        file.write("\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *svg,
                              "</svg>\n"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lacis", default="target/release/lacis")
    parser.add_argument("--machine")
    parser.add_argument("--data", default="sbm:n=50000,e=10M,classes=10,features=64,seed=1")
    parser.add_argument("--models", default="gcn,sage,gcn2")
    parser.add_argument("--policies", default="rsc,adaptive")
    parser.add_argument("--budgets", default="0.1,0.3")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--more", default="", help="further flags of `lacis train`")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no seed after so long")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; times are not kept")
    parser.add_argument("--untimed", action="store_true", help="accuracies alone, on a busy machine")
    parser.add_argument("--plot", metavar="RECORD")
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    plot(args) if args.plot else measure(args)


if __name__ == "__main__":
    main()
