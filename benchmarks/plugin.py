#!/usr/bin/env python3
"""Training epochs of PyTorch Geometric with and without Lacis, alternating in one process.

usage: plugin.py GRAPH.npz [--models gcn,sage,gin] [--hidden 32,128] [--rounds 5] [--out RECORD.json]
       plugin.py GRAPH.npz --memory          peak resident memory over the inputs, a process each
       plugin.py GRAPH.npz --compile         networks after torch.compile(fullgraph=True), a process
                                             each, in turns; modes edge_index and lacis

GRAPH.npz is a SciPy CSR matrix (symmetric). Features are random, 128 wide unless --features says
otherwise; --classes, default 40. An epoch is zero_grad, forward, loss, backward and an Adam step,
full batch; contestants take turns of two, and the second counts. Modes: `edge_index`, `csr` and
`sparse_tensor` are torch_geometric's own; `lacis` is `edge_index` after `lacis.patch()`, and
`optimize` the same after `lacis.optimize(model)` too.
Losses of all modes are compared, so that all did the same work. A record keeps the lines of all
graphs and networks; those that are measured again take the place of the old ones.
"""
import argparse
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext

warnings.filterwarnings("ignore")
MODES = ("edge_index", "csr", "sparse_tensor", "lacis", "optimize")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph")
    parser.add_argument("--models", default="gcn,sage,gin")
    parser.add_argument("--hidden", default="32,128")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--turns", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out")
    return parser.parse_args()


def load(path):
    import numpy as np
    import torch

    data = np.load(path)
    pointers = torch.from_numpy(data["indptr"].astype(np.int64))
    columns = torch.from_numpy(data["indices"].astype(np.int64))
    rows = torch.repeat_interleave(torch.arange(len(pointers) - 1), pointers.diff())
    return len(pointers) - 1, pointers, columns, torch.stack([columns, rows])


def graph_of(mode, loaded):
    import torch

    n, pointers, columns, index = loaded
    if mode == "csr":
        ones = torch.ones(columns.numel())
        return torch.sparse_csr_tensor(pointers, columns, ones, (n, n))
    if mode == "sparse_tensor":
        from torch_sparse import SparseTensor

        made = SparseTensor(rowptr=pointers, col=columns, sparse_sizes=(n, n), is_sorted=True,
                            trust_data=True)
        return made.fill_cache_()
    return index


def network(model, sizes, cached=True):
    import torch
    from torch_geometric import nn

    first, hidden, last = sizes
    if model == "gcn":
        layers = [nn.GCNConv(*size, cached=cached) for size in ((first, hidden), (hidden, last))]
    elif model == "sage":
        layers = [nn.SAGEConv(first, hidden), nn.SAGEConv(hidden, last)]
    elif model == "gin":
        layers = [nn.GINConv(torch.nn.Linear(first, hidden)),
                  nn.GINConv(torch.nn.Linear(hidden, last))]
    else:
        kind = {"gat": nn.GATConv, "gatv2": nn.GATv2Conv, "transformer": nn.TransformerConv}[model]
        layers = [kind(first, hidden // 8, heads=8), kind(hidden, last)]
    return torch.nn.ModuleList(layers)


class Contestant:
    """One mode: its model, its graph, and its epochs so far."""

    def __init__(self, mode, model, sizes, given):
        import torch

        self.mode, self.graph = mode, graph_of(mode, given[0])
        self.x, self.y = given[1:]
        torch.manual_seed(0)
        self.net = network(model, sizes)
        if mode == "optimize":
            import lacis

            lacis.optimize(self.net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)
        self.times, self.losses = [], []

    def epoch(self):
        """Two epochs, of which the second counts: patching in between changes what malloc keeps."""
        import lacis

        with lacis.patched() if self.mode in ("lacis", "optimize") else nullcontext():
            self._epoch()
            if len(self.times) > 1:
                self.times.pop()
            self._epoch()

    def forward(self, x, graph):
        import torch.nn.functional as F

        return self.net[1](F.relu(self.net[0](x, graph)), graph)

    def _epoch(self):
        import torch.nn.functional as F

        started = time.perf_counter()
        self.optimizer.zero_grad()
        out = self.forward(self.x, self.graph)
        loss = F.cross_entropy(out, self.y)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.times.append((time.perf_counter() - started) * 1e3)


def takes(model, mode):
    return model in ("gcn", "sage", "gin") or mode not in ("csr", "sparse_tensor")


def compare(options, model, hidden, given):
    sizes = (options.features, hidden, options.classes)
    modes = [mode for mode in options.modes.split(",") if takes(model, mode)]
    all_modes = [Contestant(mode, model, sizes, given) for mode in modes]
    for _ in range(options.rounds + 1):
        for one in all_modes:
            one.epoch()
    first = all_modes[0]
    for one in all_modes:
        difference = max(abs(a - b) for a, b in zip(one.losses, first.losses))
        median = statistics.median(one.times[1:])
        yield {"graph": options.graph.split("/")[-1], "model": model, "hidden": hidden,
               "mode": one.mode, "epoch_ms": round(median, 2), "first_ms": round(one.times[0], 1),
               "min_ms": round(min(one.times[1:]), 2),
               "speedup": round(statistics.median(first.times[1:]) / median, 2),
               "loss_difference": float(f"{difference:.2g}"), "threads": options.threads}


def memory(options, model, hidden, mode):
    """Peak resident bytes over what was there before the first epoch, in this process."""
    given = inputs(options)
    one = Contestant(mode, model, (options.features, hidden, options.classes), given)
    with open("/proc/self/statm") as statm:
        before = int(statm.read().split()[1]) * resource.getpagesize()
    for _ in range(3):
        one.epoch()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"graph": options.graph.split("/")[-1], "model": model, "hidden": hidden, "mode": mode,
            "extra_mib": (peak - before) >> 20}


class Compiled(Contestant):
    """The same network after `torch.compile`; PyG's own caches would end its graph."""

    def __init__(self, mode, model, sizes, given):
        import torch

        super().__init__(mode, model, sizes, given)
        torch.manual_seed(0)
        self.net = network(model, sizes, cached=False)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)
        self.forward = torch.compile(self.forward, fullgraph=True)


def turns(options, model, hidden, mode):
    """Epochs of a compiled network, two whenever a line comes in."""
    given = inputs(options)
    one = Compiled(mode, model, (options.features, hidden, options.classes), given)
    if mode == "lacis":
        import lacis

        lacis.patch()
    one._epoch()
    for _ in sys.stdin:
        one._epoch()
        one._epoch()
        print(json.dumps([one.times[-1], one.losses[-1]]), flush=True)


def compiled(options, model, hidden):
    """Two processes in turns: what was compiled in one must not know of the other's patches."""
    modes = ("edge_index", "lacis")
    command = [sys.executable, __file__, options.graph, "--turns", "--models", model, "--hidden",
               str(hidden), "--threads", str(options.threads), "--modes"]
    workers = [subprocess.Popen([*command, mode], text=True, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE) for mode in modes]
    found = {mode: [] for mode in modes}
    for _ in range(options.rounds + 1):
        for mode, worker in zip(modes, workers):
            worker.stdin.write("go\n")
            worker.stdin.flush()
            found[mode].append(json.loads(worker.stdout.readline()))
    for worker in workers:
        worker.communicate()
    medians = {mode: statistics.median(ms for ms, _ in found[mode][1:]) for mode in modes}
    for mode in modes:
        losses = zip(found[mode], found["edge_index"])
        yield {"graph": options.graph.split("/")[-1], "model": model, "hidden": hidden,
               "mode": f"{mode}, compiled", "epoch_ms": round(medians[mode], 2),
               "speedup": round(medians["edge_index"] / medians[mode], 2),
               "loss_difference": float(f"{max(abs(a[1] - b[1]) for a, b in losses):.2g}"),
               "threads": options.threads}


def inputs(options):
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    loaded = load(options.graph)
    n = loaded[0]
    x, y = torch.randn(n, options.features), torch.randint(0, options.classes, (n,))
    return loaded, x, y


def machine():
    """The processor and how many there are of it, as the system calls them."""
    try:
        with open("/proc/cpuinfo") as told_by:
            known = dict(line.split(":", 1) for line in told_by if ":" in line)
    except OSError:
        return platform.processor() or platform.machine()
    known = {key.strip(): value.strip() for key, value in known.items()}
    name, family = known.get("model name", platform.machine()), known.get("cpu family", "?")
    return f"{name}, family {family}, model {known.get('model', '?')}, {os.cpu_count()} cores"


def told(line, options):
    """Prints a line, and keeps it in the record."""
    print(json.dumps(line), flush=True)
    if not options.out:
        return
    path = pathlib.Path(options.out)
    kept = json.loads(path.read_text())["lines"] if path.exists() else []
    what = ("graph", "model", "hidden", "mode", "extra_mib")

    def name(of):
        return [of.get(key) if key != "extra_mib" else key in of for key in what]

    kept = [other for other in kept if name(other) != name(line)] + [line]
    record = {"machine": machine(), "lines": kept}
    path.write_text(json.dumps(record, indent=1) + "\n")


def main():
    options = arguments()
    jobs = [(model, int(hidden)) for model in options.models.split(",")
            for hidden in options.hidden.split(",")]
    modes = options.modes.split(",")
    if options.memory:
        if len(jobs) == 1 and len(modes) == 1:
            return print(json.dumps(memory(options, *jobs[0], modes[0])))
        for model, hidden in jobs:
            for mode in filter(lambda mode: takes(model, mode), modes):
                command = [sys.executable, __file__, options.graph, "--memory", "--models", model,
                           "--hidden", str(hidden), "--modes", mode]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                told(json.loads(done.stdout.strip().splitlines()[-1]), options)
        return None
    if options.turns:
        return turns(options, *jobs[0], modes[0])
    given = None if options.compile else inputs(options)
    import torch
    import torch_geometric

    versions = {"torch": torch.__version__, "torch_geometric": torch_geometric.__version__}
    for model, hidden in jobs:
        lines = compiled(options, model, hidden) if options.compile else \
            compare(options, model, hidden, given)
        for line in lines:
            told({**line, **versions}, options)
    return None


if __name__ == "__main__":
    main()
