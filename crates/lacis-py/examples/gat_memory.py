"""Attention without a tensor per edge: peaks of memory of GAT, plain and patched.

    python gat_memory.py [nodes] [edges]
"""

import resource
import subprocess
import sys

NODES, EDGES, HEADS, WIDTH = 20_000, 500_000, 4, 16


def peak():
    """MiB that forward and backward of one layer take above the inputs."""
    import torch
    from torch_geometric.nn import GATConv

    torch.manual_seed(0)
    x = torch.randn(NODES, HEADS * WIDTH)
    edge_index = torch.randint(0, NODES, (2, EDGES))
    layer = GATConv(HEADS * WIDTH, WIDTH, heads=HEADS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    layer(x, edge_index).sum().backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main():
    found = {}
    for name in ("plain", "patched"):
        command = [sys.executable, "-W", "ignore", __file__, "--side", name, str(NODES), str(EDGES)]
        found[name] = float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        print(f"{name:8} {found[name]:8.1f} MiB above the inputs")
    per_edge = EDGES * HEADS * WIDTH * 4 / 2**20
    print(f"one tensor with a row per edge would be {per_edge:.1f} MiB")
    assert found["patched"] < found["plain"]


if __name__ == "__main__":
    numbers = [int(arg) for arg in sys.argv if arg.isdigit()]
    NODES, EDGES = numbers if len(numbers) == 2 else (NODES, EDGES)
    if sys.argv[1:2] == ["--side"]:
        if sys.argv[2] == "patched":
            import lacis

            lacis.patch()
        print(peak())
    else:
        main()
