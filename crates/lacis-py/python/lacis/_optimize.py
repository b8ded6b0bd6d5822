"""`optimize(model)`: the order of a layer's products, chosen by their costs, and products that stay
the same from epoch to epoch computed once."""

import torch

from . import _patch
from ._cache import derived, identity, peek
from ._torch import Matrix

MARK = "_lacis_optimized"


def optimize(model, approx=None):
    """Plan the products of a module's layers; returns the same module.

    Layers of torch_geometric that Lacis knows then bracket their products by cost, ``(A·X)·W`` or
    ``A·(X·W)``, and a product whose inputs are the same tensors at the same version as in the call
    before is kept and not computed again. Class, parameters and state dict stay as they are, and
    what lies between layers stays torch's. It works with and without :func:`lacis.patch`.
    """
    if approx is not None:
        raise NotImplementedError("optimize: approx is not available yet; leave it out")
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"optimize: a torch.nn.Module is needed, not {type(model).__name__}")
    _patch.install_layers()
    for module in model.modules():
        if _patch.is_layer(module):
            module.__dict__[MARK] = True
    return model


def is_optimized(layer):
    return MARK in layer.__dict__


def is_free(linear):
    """Whether nobody would notice that a linear map is applied elsewhere: torch_geometric's or
    torch's own, without hooks, parametrization or a weight that is not there yet."""
    kind = type(linear)
    if kind.__module__ not in ("torch_geometric.nn.dense.linear", "torch.nn.modules.linear"):
        return False
    if kind.__name__ != "Linear" or "forward" in linear.__dict__:
        return False
    if linear._forward_hooks or linear._forward_pre_hooks or linear._backward_hooks or \
            linear._backward_pre_hooks:
        return False
    weight = linear.__dict__["_parameters"].get("weight")
    return weight is not None and not torch.nn.parameter.is_lazy(weight)


def kept_product(matrix, x):
    """`A·X` if it was asked for before with the same tensor at the same version, else None.

    The first call only remembers who asked: features that are new every time, as in batches and
    after dropout, cost nothing.
    """
    if not isinstance(matrix, Matrix) or x.requires_grad or x.is_inference():
        return None
    key = ("product", id(matrix))
    found = peek(x, key)
    if found is not None and found[0] is matrix:
        return found[1]
    seen = peek(x, ("seen", id(matrix)))
    if seen is None or seen[0] is not matrix:
        derived(x, ("seen", id(matrix)), lambda: (matrix, identity(x)))
        return None
    return derived(x, key, lambda: (matrix, matrix.product(x)))[1]


def gathers_first(matrix, x, width):
    """Whether `(A·X)·W` costs less than `A·(X·W)`, forward and backward, where `X·W` is so wide."""
    backward = torch.is_grad_enabled()
    first = matrix.seconds(x.size(1), x.dtype) * (1 + (backward and x.requires_grad))
    last = matrix.seconds(width, x.dtype) * (1 + backward)
    return first < last
