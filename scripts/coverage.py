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
import torch_geometric  # noqa: E402
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


def prepared(make, dtype):
    torch.manual_seed(0)
    return make().to(dtype).eval(), torch.randn(N, K, dtype=dtype)


def original(make, dtype, adjacency):
    """What PyG gives, or nothing where it raises."""
    layer, x = prepared(make, dtype)
    try:
        return call(layer, x, adjacency)
    except Exception:
        return None


def tried(make, dtype, adjacency, expected):
    """What became of a patched call: fused, or why not."""
    if expected is None:
        return "PyG raises"
    layer, x = prepared(make, dtype)
    _report.reset()
    found = call(layer, x, adjacency)
    row = _report.record(type(layer).__name__)
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-9}.get(dtype, 0.1)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    return "fused" if row.accelerated else next(iter(row.declined), "the original ran")


def outcomes():
    """By layer and kind of input, one outcome per dtype. Patching takes longer than calling, so it
    is done once."""
    cases = [(name, make, kind, dtype, adjacency) for name, make in LAYERS.items()
             for dtype in DTYPES.values() for kind, adjacency in inputs(dtype)]
    expected = [original(make, dtype, adjacency) for _, make, _, dtype, adjacency in cases]
    found = {}
    with lacis.patched():
        for (name, make, kind, dtype, adjacency), plain in zip(cases, expected):
            found.setdefault((name, kind), []).append(tried(make, dtype, adjacency, plain))
    return found


def versions():
    """What PyG raises depends on these."""
    short = (".".join(version.split(".")[:2]) for version in (torch.__version__, torch_geometric.__version__))
    return "torch {} and torch_geometric {}".format(*short)


def page():
    reasons, rows = [], []
    for (name, kind), of_dtypes in outcomes().items():
        rows.append(f"| {name} | {kind} | " + " | ".join(_cell(o, reasons) for o in of_dtypes) + " |")
    lines = ["# What runs on Lacis after `lacis.patch()`", "",
             "Made by `scripts/coverage.py`, which calls every layer with every input, plain and patched, and",
             "compares. *PyG raises*: the original cannot be called so either. A number: the original ran, for the",
             f"reason below. Made with {versions()}; `lacis.report()` says it of your own program.", "",
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
    if "--check" not in sys.argv:
        print(page(), end="")
    elif versions() not in PAGE.read_text():
        print(f"skipped: docs/coverage.md was made with other versions than {versions()}")
    elif not same(page(), PAGE.read_text()):
        sys.exit("docs/coverage.md is not what is; `scripts/coverage.py > docs/coverage.md` makes it anew")
