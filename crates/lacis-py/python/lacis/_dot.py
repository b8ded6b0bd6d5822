"""Attention by dot products with autograd around: of given queries, keys and values, and of a layer
that makes them, as one operation."""

import torch

from . import _lacis
from ._backward import Owned, first_order
from ._dense import NN, NT, TN, multiply
from ._torch import NUMBERS, SUMS, as_rows, attended, column_sums, empty, raw


def _attention(queries, ends, features, how):
    """The result, and a number per row and head for the backward pass; `ends` are keys and values.
    """
    adjacency, heads, scale, p, seed = how
    y = empty(adjacency.shape[0], ends[1].size(1), queries.dtype)
    lse = torch.empty((y.size(0), heads), dtype=SUMS[y.dtype])
    given, edges = (raw(queries), heads, scale), (raw(features), None, p, seed)
    _lacis.dot_attention(adjacency, NUMBERS[y.dtype],
                         (given, tuple(map(raw, ends)), edges, raw(y), raw(lse)),
                         attended(adjacency, y))
    return y, lse


def _gradients(queries, ends, features, how, past):
    """The gradients of queries and of the edges' features, the latter only where it is wanted.
    `ends` has keys and values side by side, and their gradients afterwards."""
    adjacency, heads, scale, p, seed = how
    lse, grad, wants_features = past
    dqueries = empty(*queries.shape, queries.dtype)
    dfeatures = empty(*features.shape, queries.dtype) if wants_features else None
    given, edges = (raw(queries), heads, scale), (raw(features), None, p, seed)
    _lacis.dot_attention_backward(
        adjacency, NUMBERS[queries.dtype],
        (given, edges, (raw(lse), raw(grad)), (raw(dqueries), raw(ends), raw(dfeatures))),
        attended(adjacency, grad))
    return dqueries, dfeatures


class _DotAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, queries, keys, values, features, how):
        given = (queries, keys, values, features)
        q, k, v, f = map(as_rows, given)
        y, lse = _attention(q, (k, v), f, how)
        ctx.how = how
        ctx.save_for_backward(*given, lse)
        return y

    @staticmethod
    @first_order
    def backward(ctx, grad):
        queries, keys, values, features, lse = ctx.saved_tensors
        width = keys.size(1)
        ends = empty(keys.size(0), width + values.size(1), keys.dtype)
        ends[:, :width], ends[:, width:] = keys, values
        past = (lse, as_rows(grad), ctx.needs_input_grad[3])
        dqueries, dfeatures = _gradients(as_rows(queries), ends, as_rows(features), ctx.how, past)
        return dqueries, ends[:, :width], ends[:, width:], dfeatures, None


dot_attention = _DotAttention.apply


def layer(given, how):
    """A Transformer layer, ``attention(t·W_qᵀ, x·W_kᵀ, x·W_vᵀ) + t·W_sᵀ``. `given` has x, t or None
    where that is x, the edges' features or None, and weight and bias of queries, keys, values and
    of what is added; biases and the last weight may be None."""
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in given):
        return _Layer.apply(*given, how)
    return _forward(given, how)[0]


def _forward(given, how):
    """The result, and what the backward pass needs: queries, keys beside values, and `lse`."""
    x, target, features, *weights = given
    wq, bq, wk, bk, wv, bv, ws, bs = weights
    own = x if target is None else target
    queries, ends = multiply(own, wq, NT, _plain(bq)), _ends(x, (wk, wv), (bk, bv))
    y, lse = _attention(queries, _apart(ends, wk), as_rows(features), how)
    if ws is not None:
        multiply(own, ws, NT, _plain(bs), out=y)
    return y, queries, ends, lse


def _ends(x, weights, biases):
    """Keys and values side by side: who gathers a key gathers the value too, from the lines after
    it."""
    bias = None if biases[0] is None else torch.cat(biases)
    return multiply(x, torch.cat(weights), NT, bias)


def _plain(bias):
    return None if bias is None else bias.contiguous()


def _apart(ends, wk):
    width = wk.size(0)
    return ends[:, :width], ends[:, width:]


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target, features, wq, bq, wk, bk, wv, bv, ws, bs, how):
        given = (x, target, features, wq, bq, wk, bk, wv, bv, ws, bs)
        y, queries, ends, lse = _forward(given, how)
        ctx.how, ctx.result = how, Owned(ends)
        # Biases that are changed before the backward pass are no error with torch's own maps.
        ctx.also_from = (bq, bk, bv)
        ctx.biases = None if bk is None else (bk.detach().clone(), bv.detach().clone())
        ctx.save_for_backward(x, target, features, wq, wk, wv, ws, queries, lse)
        return y

    @staticmethod
    @first_order
    def backward(ctx, grad):
        x, target, features, wq, wk, wv, ws, queries, lse = ctx.saved_tensors
        needs, grad = ctx.needs_input_grad, as_rows(grad)
        biases = ctx.biases or (None, None)
        ends = ctx.result.take(lambda: _ends(x, (wk, wv), biases))
        past = (lse, grad, needs[2])
        dqueries, dfeatures = _gradients(queries, ends, as_rows(features), ctx.how, past)
        own = x if target is None else target
        dwq, dbq = _of_map(dqueries, own, needs[3:5])
        dwk, dbk = _of_map(ends, x, (needs[5] or needs[7], needs[6] or needs[8]))
        dws, dbs = _of_map(grad, own, needs[9:11])
        width = wk.size(0)
        (dwk, dwv), (dbk, dbv) = _halves(dwk, width), _halves(dbk, width)
        dx = dtarget = None
        if needs[0]:
            dx = multiply(ends, torch.cat((wk, wv)), NN)
        # Nobody needs it any more, and what follows needs room.
        del ends
        if needs[0] and target is None or needs[1]:
            into = dx if target is None else None
            into = multiply(dqueries, wq, NN, out=into)
            if ws is not None:
                multiply(grad, ws, NN, out=into)
            dx, dtarget = (into, None) if target is None else (dx, into)
        return dx, dtarget, dfeatures, dwq, dbq, dwk, dbk, dwv, dbv, dws, dbs, None


def _of_map(grad, x, needs):
    """The gradients of a linear map's weight and bias, where somebody needs them."""
    weight = multiply(grad, x, TN) if needs[0] else None
    return weight, column_sums(grad) if needs[1] else None


def _halves(both, width):
    """Two gradients of one: programs may change either in place."""
    return (None, None) if both is None else (both[:width].clone(), both[width:].clone())
