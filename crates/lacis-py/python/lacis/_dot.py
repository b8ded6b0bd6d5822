"""Attention by dot products on torch tensors, with autograd around: of three matrices, or of one
that holds what four linear maps made of the same features."""

import torch
from torch.autograd.function import once_differentiable

from . import _lacis
from ._crew import SPARSE, crew
from ._torch import NUMBERS, SUMS, as_rows, empty, raw, _raw


def _forward(given, features, how):
    """The result and what its softmax was divided by; `given` are queries, keys and values."""
    adjacency, heads, scale, p, seed = how
    dtype = given[1].dtype
    y = empty(adjacency.shape[0], given[2].size(1), dtype)
    lse = torch.empty((y.size(0), heads), dtype=SUMS[dtype])
    call = ((*map(raw, given), heads, scale), (_raw(features), None, p, seed), raw(y),
            raw(lse))
    _lacis.dot_attention(adjacency, NUMBERS[dtype], call, _crew(adjacency, y))
    return y, lse


def _backward(given, features, how, past, grads):
    """Writes the gradients of queries, keys, values and features; `past` is what
    :func:`_forward` found, and the gradient of the result."""
    adjacency, heads, scale, p, seed = how
    edges = (_raw(features), None, p, seed)
    call = ((*map(raw, given), heads, scale), edges, tuple(map(raw, past)),
            (*map(raw, grads[:3]), _raw(grads[3])))
    _lacis.dot_attention_backward(adjacency, NUMBERS[given[1].dtype], call,
                                  _crew(adjacency, past[0]))


def _crew(adjacency, y):
    return crew(adjacency.shape[2] * y.size(1) / SPARSE)


class _DotAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, queries, keys, values, features, how):
        given = (as_rows(queries), as_rows(keys), as_rows(values))
        features = None if features is None else as_rows(features)
        y, lse = _forward(given, features, how)
        ctx.how = how
        ctx.save_for_backward(*given, features, y, lse)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        *given, features, y, lse = ctx.saved_tensors
        grads = [empty(*x.shape, x.dtype) for x in given]
        grads.append(empty(*features.shape, y.dtype) if ctx.needs_input_grad[3] else None)
        _backward(given, features, ctx.how, (y, lse, as_rows(grad)), grads)
        return *grads, None


class _Together(torch.autograd.Function):
    """``attention(q, k, v) + s`` of ``[q | k | v | s]``, or without `s` of ``[q | k | v]``; the
    gradient is such a matrix too."""

    @staticmethod
    def forward(ctx, wide, features, width, how):
        given, own = _parts(wide, width)
        features = None if features is None else as_rows(features)
        y, lse = _forward(given, features, how)
        ctx.how, ctx.width = how, width
        ctx.save_for_backward(wide, features, y, lse)
        return y if own is None else torch.add(y, own, out=empty(*y.shape, y.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        wide, features, y, lse = ctx.saved_tensors
        dwide, grad = empty(*wide.shape, wide.dtype), as_rows(grad)
        dgiven, down = _parts(dwide, ctx.width)
        dfeatures = empty(*features.shape, y.dtype) if ctx.needs_input_grad[1] else None
        _backward(_parts(wide, ctx.width)[0], features, ctx.how, (y, lse, grad),
                  (*dgiven, dfeatures))
        if down is not None:
            down.copy_(grad)
        return dwide, dfeatures, None, None


def _parts(wide, width):
    """Queries, keys and values, `width` columns each, and what is left, if anything is."""
    given = [wide[:, at:at + width] for at in range(0, 3 * width, width)]
    return given, wide[:, 3 * width:] if wide.size(1) > 3 * width else None


dot_attention = _DotAttention.apply
together = _Together.apply
