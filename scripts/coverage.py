#!/usr/bin/env python3
"""Which calls of patched layers run on Lacis: layer × input × dtype, tried out one by one.

usage: coverage.py            prints docs/coverage.md
       coverage.py --check    exit 1 where docs/coverage.md says something else
"""
import pathlib
import sys
import warnings

warnings.simplefilter("ignore")
import torch  # noqa: E402
import torch_geometric.nn as nn  # noqa: E402
from torch_geometric import EdgeIndex  # noqa: E402

import lacis  # noqa: E402
from lacis import _report  # noqa: E402

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "coverage.md"
N, K = 12, 8
DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
LAYERS = {
    "GCNConv": lambda: nn.GCNConv(K, K),
    "SAGEConv, mean": lambda: nn.SAGEConv(K, K),
    "SAGEConv, sum": lambda: nn.SAGEConv(K, K, aggr="sum"),
    "SAGEConv, max": lambda: nn.SAGEConv(K, K, aggr="max"),
    "GINConv": lambda: nn.GINConv(torch.nn.Linear(K, K)),
    "GraphConv": lambda: nn.GraphConv(K, K),
    "SGConv": lambda: nn.SGConv(K, K, K=2),
    "TAGConv": lambda: nn.TAGConv(K, K),
    "ChebConv": lambda: nn.ChebConv(K, K, K=3),
    "APPNP": lambda: nn.APPNP(2, 0.1),
    "GCN2Conv": lambda: nn.GCN2Conv(K, 0.1),
    "GATConv": lambda: nn.GATConv(K, 4, heads=2),
    "GATv2Conv": lambda: nn.GATv2Conv(K, 4, heads=2),
    "TransformerConv": lambda: nn.TransformerConv(K, 4, heads=2),
}


def edges():
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, N, (2, 40), generator=generator)
    return torch.unique(drawn[:, drawn[0] != drawn[1]], dim=1).contiguous()


def inputs(dtype):
    """Every form of adjacency that layers are given; rows of a matrix are targets."""
    edge_index = edges()
    yield "edge_index, int64", edge_index
    yield "edge_index, int32", edge_index.int()
    yield "EdgeIndex", EdgeIndex(edge_index, sparse_size=(N, N)).sort_by("col").values
    coo = torch.sparse_coo_tensor(edge_index.flip(0), torch.ones(edge_index.size(1), dtype=dtype),
                                  (N, N)).coalesce()
    yield "torch CSR", coo.to_sparse_csr()
    yield "torch CSC", coo.to_sparse_csc()
    yield "torch COO", coo
    try:
        from torch_sparse import SparseTensor
    except ImportError:
        return
    yield "SparseTensor", SparseTensor(row=edge_index[1], col=edge_index[0], sparse_sizes=(N, N))


def call(layer, x, adjacency):
    given = (x, x, adjacency) if isinstance(layer, nn.GCN2Conv) else (x, adjacency)
    return layer(*given)


def tried(make, dtype, adjacency):
    """What became of a call: fused, or why not."""
    torch.manual_seed(0)
    layer, x = make().to(dtype).eval(), torch.randn(N, K, dtype=dtype)
    try:
        expected = call(layer, x, adjacency)
    except Exception:
        return "PyG raises"
    _report.reset()
    with lacis.patched():
        found = call(layer, x, adjacency)
        row = _report.record(type(layer).__name__)
    tolerance = {"f32": 1e-4, "f64": 1e-9}.get(str(dtype)[6:], 0.1)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    return "fused" if row.accelerated else next(iter(row.declined), "original")


def page():
    reasons, rows = [], []
    for name, make in LAYERS.items():
        cells = {}
        for short, dtype in DTYPES.items():
            for kind, adjacency in inputs(dtype):
                cells.setdefault(kind, []).append(tried(make, dtype, adjacency))
        for kind, outcomes in cells.items():
            rows.append(f"| {name} | {kind} | " + " | ".join(_cell(o, reasons) for o in outcomes) + " |")
    lines = ["# What runs on Lacis after `lacis.patch()`", "",
             "Made by `scripts/coverage.py`, which calls every layer with every input, plain and patched, and",
             "compares. *PyG raises*: the original cannot be called so either. A number: the original ran, for the",
             "reason below. `lacis.report()` says the same of your own program.", "",
             "| layer | adjacency | " + " | ".join(DTYPES) + " |", "| --- | --- |" + " --- |" * len(DTYPES), *rows, ""]
    lines += [f"{at}. {reason}" for at, reason in enumerate(reasons, 1)]
    return "\n".join(lines).rstrip() + "\n"


def _cell(outcome, reasons):
    if outcome in ("fused", "PyG raises"):
        return outcome
    if outcome not in reasons:
        reasons.append(outcome)
    return str(reasons.index(outcome) + 1)


def same(made, kept):
    """Whether two pages say the same of what is installed here: torch_sparse may be missing."""
    def rows(text):
        return [line for line in text.splitlines() if line.startswith("| ") and "SparseTensor" not in line]

    return rows(made) == rows(kept)


if __name__ == "__main__":
    made = page()
    if "--check" in sys.argv:
        if not same(made, PAGE.read_text()):
            sys.exit("docs/coverage.md is not what is; `scripts/coverage.py > docs/coverage.md` makes it anew")
    else:
        print(made, end="")
