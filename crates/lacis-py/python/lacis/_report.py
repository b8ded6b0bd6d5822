"""What was accelerated and what was not, and why."""

import time
from collections import Counter

_records = {}
_measure = {"asked": set()}


class Record:
    """The calls of one layer or function."""

    __slots__ = ("name", "accelerated", "seconds", "saved_bytes", "declined", "original_seconds",
                 "compared", "largest_difference")

    def __init__(self, name):
        self.name = name
        self.declined = Counter()
        self.accelerated = self.seconds = self.saved_bytes = 0
        self.original_seconds = self.compared = self.largest_difference = 0

    def run(self, run, given=()):
        started = time.perf_counter()
        result = run()
        self.seconds += time.perf_counter() - started
        self.accelerated += 1
        self.saved_bytes += _message_bytes(self.name, given, result)
        return result


# How many tensors with a row per edge the originals make of an `edge_index`, going forward: the
# gathered rows, the weighted ones, and for attention what its softmax takes besides.
_PER_EDGE = {"GCNConv": 2, "SAGEConv": 1, "GINConv": 1, "GraphConv": 1, "GATConv": 2,
             "GATv2Conv": 5, "TransformerConv": 5}


def _message_bytes(name, given, result):
    """Bytes of those tensors, as an estimate; nothing for sparse matrices, which have none."""
    tensors = _PER_EDGE.get(name)
    if not tensors or len(given) < 2:
        return 0
    x, index = given[:2]
    x = x[0] if isinstance(x, (tuple, list)) else x
    if type(index).__name__ != "Tensor" or index.layout is not _strided():
        return 0
    width = x.size(-1) if name in ("SAGEConv", "GINConv", "GraphConv") else result.size(-1)
    return tensors * index.size(1) * width * result.element_size()


def _strided():
    import torch

    return torch.strided


def record(name):
    """The record of a layer or function."""
    found = _records.get(name)
    if found is None:
        found = _records[name] = Record(name)
    return found


def reset():
    _records.clear()


class Report:
    """Calls by layer and function; prints as a table; `rows`, `plans`, `approximations`, `caches`
    and `memory` are data."""

    def __init__(self, rows, planned, caches, memory, patched):
        self.rows, self.caches, self.memory, self.patched = rows, caches, memory, patched
        self.plans, self.approximations = planned

    def __repr__(self):
        lines = ["lacis: patched" if self.patched else "lacis: not patched"]
        if self.rows:
            lines.append(f"{'what':<34}{'accelerated':>12}{'not':>7}{'forward s':>11}"
                         f"{'not allocated':>15}")
        for row in self.rows:
            lines.append(f"{row['name']:<34}{row['accelerated']:>12}{row['not_accelerated']:>7}"
                         f"{row['seconds']:>11.3f}{_size(row['bytes_not_allocated']):>15}")
            for why, count in row["why"].items():
                lines.append(f"    {count} left to the original: {why}")
            if row.get("original_ms") is not None:
                lines.append(f"    original {row['original_ms']:.3f} ms a call, here "
                             f"{row['own_ms']:.3f} ms; largest difference "
                             f"{row['largest_difference']:.3g}")
        if not self.rows:
            lines.append("nothing was called yet")
        lines += map(_plan_line, self.plans)
        for one in self.approximations:
            lines += _approximation_lines(one)
        cache = self.caches
        lines.append(f"caches: {cache['objects']} objects of {cache['tensors']} tensors, "
                     f"{_size(cache['bytes'])}, {cache['hits']} hits, {cache['misses']} misses")
        lines.append(f"memory of results and kernels: {_size(self.memory['used_bytes'])} in use, "
                     f"{_size(self.memory['kept_bytes'])} kept for reuse")
        return "\n".join(lines)


def _plan_line(plan):
    weighed = [other["predicted_ms"] for other in plan["candidates"]
               if other["predicted_ms"] is not None]
    best = f"; {len(weighed)} weighed, up to {max(weighed):.2f} ms" if len(weighed) > 1 else ""
    kept = ", A·X kept" if plan["kept"] else ""
    return (f"plan of {plan['calls']} calls: {plan['kind']} {plan['inputs']} to {plan['outputs']} "
            f"columns, {plan['rows']:,} nodes, {plan['entries']:,} entries: {plan['formula']}"
            f"{kept}, {plan['predicted_ms']:.2f} ms predicted{best}")


def _approximation_lines(one):
    """What sampling did, for each product, and where the planner left it off."""
    yield f"approximation: {one['policy']}, budget {one['budget']:g}"
    for layer in one["layers"]:
        if layer["kept"] is None:
            yield f"    layer {layer['layer']}: exact so far"
            continue
        exact, sampled = layer["exact_ms"], layer["sampled_ms"]
        times = "" if None in (exact, sampled) else f", {exact:.2f} ms exact, {sampled:.2f} sampled"
        yield (f"    layer {layer['layer']}: {layer['kept']:.3f} of {layer['entries']:,} entries "
               f"kept, error {layer['error']:.3f}{times}")
    for layer in one["left_off"]:
        yield f"    layer {layer['layer']}: left exact, sampling cannot pay there"


def _size(n):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024


def report(measure=False):
    """Say which calls were accelerated, which were not and why, with times, memory and caches.

    With ``measure=True`` the next call of each layer also runs the original beside it, without
    gradients; the report after that shows both times and the largest difference of the results.
    """
    from . import _patch
    from ._lacis import result_memory

    rows = []
    for one in _records.values():
        row = {"name": one.name, "accelerated": one.accelerated,
               "not_accelerated": sum(one.declined.values()), "seconds": one.seconds,
               "bytes_not_allocated": one.saved_bytes, "why": dict(one.declined)}
        if one.compared:
            row["original_ms"] = one.original_seconds / one.compared * 1e3
            row["own_ms"] = one.seconds / max(one.accelerated, 1) * 1e3
            row["largest_difference"] = one.largest_difference
        rows.append(row)
    if measure:
        from ._layers import LAYERS

        _measure["asked"] = set(LAYERS)
    kept, used = result_memory()
    caches = {"objects": 0, "tensors": 0, "bytes": 0, "hits": 0, "misses": 0}
    import sys

    if f"{__package__}._cache" in sys.modules:
        from ._cache import summary

        caches = summary()
    memory = {"used_bytes": used, "kept_bytes": kept}
    return Report(rows, _planned(), caches, memory, _patch.is_patched())


def _planned():
    """Plans and approximations, where anything was planned."""
    import sys

    if f"{__package__}._optimize" not in sys.modules:
        return [], []
    from ._optimize import approximations
    from ._plans import plans

    return plans(), approximations()


def wants_measure(name):
    """Whether the next call of this name is to run the original too."""
    asked = _measure["asked"]
    wanted = name in asked
    asked.discard(name)
    return wanted
