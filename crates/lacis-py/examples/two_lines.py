"""One PyG program, with and without two lines: times, peaks of memory, largest difference.

    python two_lines.py [nodes] [edges]

Each side runs in a process of its own, on the same generated graph and the same first weights.
"""

import json
import resource
import subprocess
import sys
import time

NODES, EDGES, FEATURES, CLASSES, EPOCHS = 50_000, 1_000_000, 64, 16, 5


def program():
    """An ordinary PyG program: it knows nothing of Lacis."""
    import torch
    from torch_geometric.nn import SAGEConv

    torch.manual_seed(0)
    x = torch.randn(NODES, FEATURES)
    edge_index = torch.randint(0, NODES, (2, EDGES))
    y = torch.randint(0, CLASSES, (NODES,))
    first, second = SAGEConv(FEATURES, 64), SAGEConv(64, CLASSES)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, firsts = [], None
    for _ in range(EPOCHS):
        start = time.perf_counter()
        optimizer.zero_grad()
        out = second(first(x, edge_index).relu(), edge_index)
        loss = torch.nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        firsts = out.detach() if firsts is None else firsts
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"epoch_s": sorted(seconds[1:])[len(seconds[1:]) // 2], "peak_mib": peak / 1024,
            "loss": loss.item(), "out": firsts[:1000].tolist()}


def side(name):
    if name == "patched":
        import lacis

        lacis.patch()
    print(json.dumps(program()))


def main():
    results = {}
    for name in ("plain", "patched"):
        command = [sys.executable, "-W", "ignore", __file__, "--side", name, str(NODES), str(EDGES)]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        results[name] = json.loads(said)
    plain, patched = results["plain"], results["patched"]
    difference = max(abs(a - b) for left, right in zip(plain["out"], patched["out"])
                     for a, b in zip(left, right))
    print(f"two layers of GraphSAGE, {NODES:,} nodes, {EDGES:,} edges")
    for name, result in results.items():
        print(f"{name:8} {1e3 * result['epoch_s']:8.1f} ms an epoch, "
              f"{result['peak_mib']:8.1f} MiB above the inputs")
    print(f"ratio    {plain['epoch_s'] / patched['epoch_s']:8.1f} times as fast, "
          f"{plain['peak_mib'] / max(patched['peak_mib'], 1e-9):.1f} times less memory")
    print(f"largest difference of an output: {difference:.1e}; "
          f"losses after {EPOCHS} epochs: {plain['loss']:.6f} and {patched['loss']:.6f}")
    assert difference < 1e-4 and abs(plain["loss"] - patched["loss"]) < 1e-3


if __name__ == "__main__":
    numbers = [int(arg) for arg in sys.argv if arg.isdigit()]
    NODES, EDGES = numbers if len(numbers) == 2 else (NODES, EDGES)
    side(sys.argv[2]) if sys.argv[1:2] == ["--side"] else main()
