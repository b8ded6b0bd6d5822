"""What the planner says of a layer on a graph: asked once for each kind of problem."""

import json
from collections import OrderedDict
from functools import lru_cache
from math import log2

import torch

from ._lacis import plan_layer

# Problems whose plans are kept; the least recently used makes room.
LIMIT = 256
_plans = OrderedDict()


def plan(kind, matrix, x, how, asked):
    """The plan of `A·x·Wᵀ` (None where the planner has none): `how` is (columns of the result,
    bias, root weight) and how many times it gathers, if not once; `asked` whether x is the same
    every time, and the share of backward work."""
    width, bias, root, *hops = how
    stays, budget = asked
    learns = torch.is_grad_enabled()
    flags = (bias, root, learns, learns and x.requires_grad, stays)
    size = (*matrix.shape, matrix.nnz)
    key = (kind, *map(_magnitude, size), x.size(1), width, *hops, flags, budget)
    found = _plans.get(key)
    if found is None and key not in _plans:
        layer = (kind, size, (x.size(1), width), hops[0] if hops else 1)
        found = _plans[key] = _planned(layer, flags, budget)
        while len(_plans) > LIMIT:
            _plans.popitem(last=False)
    if found is not None:
        found["calls"] += 1
    return found


@lru_cache(1 << 12)
def _magnitude(n):
    """Batches differ a little in size, and not in what is best for them: eight steps from a size to
    twice as much."""
    return round(8 * log2(n)) if n > 0 else -1


def _planned(layer, flags, budget):
    try:
        found = json.loads(plan_layer(layer, flags, budget))
    except (ValueError, OverflowError):
        return None
    kind, size, widths, _ = layer
    _, _, learns, goes_on, stays = flags
    return {**found, "kind": kind, "rows": size[0], "columns": size[1], "entries": size[2],
            "inputs": widths[0], "outputs": widths[1], "learns": learns, "input_grad": goes_on,
            "kept": stays and found["gathers_first"], "calls": 0}


def plans():
    """All that were made and used."""
    return [dict(plan) for plan in _plans.values() if plan is not None]


def clear():
    _plans.clear()
