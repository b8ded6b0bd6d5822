"""`optimize(model)`: products that stay the same from epoch to epoch computed once, their order
chosen with that in mind, and backward products from some of their pairs where that is asked for."""

import json
import uuid
from collections import OrderedDict
from weakref import ref

import torch

from . import _lacis, _patch, _plans
from ._cache import derived, peek
from ._dense import Order
from ._torch import Matrix

MARK = "_lacis_optimized"
_POLICIES = ("rsc", "adaptive")
# What models share for sampling, by the name that their layers carry; the oldest make room.
_MOST_SAMPLINGS = 64
_samplings = OrderedDict()


def optimize(model, approx=None, *, approx_budget=0.1, approx_error=None, approx_bound=None,
             approx_switch=0.8, approx_force=False, epochs=None, seed=0):
    """Plan the products of a module's layers; returns the same module.

    The planner knows layers of torch_geometric by their formulas. It brackets their products by
    what they cost on this machine and graph, forward and backward together, and keeps ``A·X``
    where its inputs are the same tensors at the same version as in the call before. Class,
    parameters and state dict stay as they are, and what lies between layers stays torch's. It
    works with and without :func:`lacis.patch`; :func:`lacis.report` shows the plans.

    With ``approx="rsc"`` or ``"adaptive"`` backward products with the adjacency are computed from
    some of their pairs, as ``lacis train --approx`` does: ``approx_budget`` is the share of their
    work, ``approx_error`` an error that the budget follows instead, and from ``approx_switch`` of
    ``epochs`` on, where that number is given, everything is exact. A layer whose relative error is
    not below ``approx_bound`` (rsc: 0.2, adaptive: 1) is exact for some epochs. A layer for which the planner
    says that it cannot pay stays exact, unless ``approx_force``. A budget of 1 is exact.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"optimize: a torch.nn.Module is needed, not {type(model).__name__}")
    asked = None
    if approx not in (None, "off"):
        asked = _asked(approx, (approx_budget, approx_error, approx_bound, approx_switch), epochs,
                       seed)
        asked["force"] = bool(approx_force)
    _patch.install_layers()
    for number, module in enumerate(filter(_patch.is_layer, model.modules())):
        module.__dict__[MARK] = True if asked is None else {**asked, "layer": number}
    return model


def _asked(approx, numbers, epochs, seed):
    """What is asked for, as plain data: a model that is pickled needs no Lacis to be read."""
    if approx not in _POLICIES:
        raise ValueError(f"optimize: approx={approx!r}; 'rsc' or 'adaptive' would be right")
    budget, error, bound, switch = numbers
    given = (approx, float(budget), None if error is None else float(error), float(switch),
             None if epochs is None else int(epochs), None if bound is None else float(bound))
    _lacis.Sampling(given, int(seed))  # says what is wrong with them
    return {"given": given, "seed": int(seed), "group": uuid.uuid4().hex}


def is_optimized(layer):
    return MARK in layer.__dict__


class _Shared:
    """What the layers of a model share: the native state, and which product has which number."""

    def __init__(self, asked):
        # Models that were pickled before there was a bound have none.
        self.native = _lacis.Sampling((*asked["given"], None)[:6], asked["seed"])
        self.numbers = {}
        self.left_off = {}

    def number(self, product, width):
        found = self.numbers.get(product)
        if found is None:
            found = self.numbers[product] = self.native.add(width)
        return found


def _shared(asked):
    found = _samplings.get(asked["group"])
    if found is None:
        found = _samplings[asked["group"]] = _Shared(asked)
        while len(_samplings) > _MOST_SAMPLINGS:
            _samplings.popitem(last=False)
    return found


def sampler(layer, width, plan, position=0):
    """Who computes a backward product of a layer from some of its pairs, or None."""
    asked = layer.__dict__.get(MARK)
    if not isinstance(asked, dict) or not torch.is_grad_enabled():
        return None
    shared, product = _shared(asked), (asked["layer"], position, width)
    if plan is not None and not asked["force"] and asked["given"][1] < 1.0:
        sampling = plan["sampling"]
        if sampling is None or not sampling["pays"]:
            shared.left_off[product] = None if sampling is None else sampling["speedup"]
            return None
    return shared.native, shared.number(product, width)


def budget_of(layer):
    """The share of backward products that a layer is asked to compute, or None for all."""
    asked = layer.__dict__.get(MARK)
    return asked["given"][1] if isinstance(asked, dict) else None


def approximations():
    """What was kept, how far off it was and what was left exact, for each optimized model."""
    found = []
    for shared in _samplings.values():
        report = json.loads(shared.native.report())
        names = {number: product for product, number in shared.numbers.items()}
        for layer in report["layers"]:
            layer["layer"] = names[layer["step"] - 1][0]
        report["left_off"] = [{"layer": layer, "width": width, "predicted_speedup": speedup}
                              for (layer, _, width), speedup in shared.left_off.items()]
        found.append(report)
    return found


def samplers(layer, operator, x, hops):
    """For each of a layer's products with one matrix: who computes its gradient, or None."""
    budget = budget_of(layer)
    if budget is None or not isinstance(operator, Matrix):
        return [None] * hops
    width = x.size(1)
    plan = _plans.plan("gcn", operator, x, (width, False, False), (False, budget))
    return [sampler(layer, width, plan, position) for position in range(hops)]


def order_of(layer, kind, matrix, x, how):
    """How a layer computes `A·x·Wᵀ`; `how` is (columns of the result, bias, root weight) and how
    many times it gathers, if not once."""
    if kind != "gcn" and torch.is_grad_enabled() and x.is_inference():
        # No backward pass may read it, as the originals' need not.
        return Order(matrix)
    optimized = is_optimized(layer)
    stays = optimized and _was_seen(matrix, x)
    plan = _plans.plan(kind, matrix, x, how, (stays, budget_of(layer)))
    if plan is None:
        return Order(matrix, kind != "gcn", True)
    kept = None
    if stays and plan["gathers_first"]:
        kept = x
        for _ in range(how[3] if len(how) > 3 else 1):
            kept = _kept(matrix, kept)
    back = how[0] if plan["narrow_back"] or not plan["gathers_first"] else x.size(1)
    sample = sampler(layer, back, plan) if optimized else None
    return Order(matrix, plan["gathers_first"], plan["narrow_back"], kept, sample)


def _was_seen(matrix, x):
    """Whether a product was asked for before with the same tensor at the same version.

    The first call only remembers who asked: features that are new every time, as in batches and
    after dropout, cost nothing.
    """
    if not isinstance(matrix, Matrix) or x.requires_grad or x.is_inference():
        return False
    seen = peek(x, "seen", (id(matrix),))
    if seen is not None and seen[0] is matrix and _is_same(x, seen[1]):
        return True
    _remember(x, "seen", [matrix, ref(x)])
    return False


def _is_same(x, before):
    """Whether it is the very tensor, or a view, which shares its version with what it is a view of.
    `p.data` is a new tensor each time, whose version says nothing of writes to `p`."""
    return before() is x or x._is_view()


def _remember(x, key, made):
    """Keeps a list that begins with the matrix."""
    derived(x, key, lambda: made, which=(id(made[0]),))[:] = made


def _kept(matrix, x):
    found = peek(x, "product", (id(matrix),))
    if found is None or found[0] is not matrix or not _is_same(x, found[1]):
        found = [matrix, ref(x), matrix.product(x)]
        _remember(x, "product", found)
    return found[2]


def kept_product(matrix, x):
    """`A·X` if it was asked for before with the same tensor at the same version, else None."""
    return _kept(matrix, x) if _was_seen(matrix, x) else None
