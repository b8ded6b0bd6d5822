"""SG, TAG, Cheb, APPNP and GCN2: several products with one normalised adjacency."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .._cache import derived
from .._dense import combined, fits, linear
from .._inputs import (check_edges, check_features, edge_adjacency, plain_edges, require,
                      valued_matrix)
from .._optimize import order_of, samplers
from .._torch import Matrix
from .common import apply_norm, check_weight, gather, norm_operator, only_sums, weighted_sum


def sg(self, x, edge_index, edge_weight=None):
    check_features(x)
    if self._cached_x is not None:
        kept = self._cached_x
        return lambda: linear(self.lin, kept.detach())
    operator, dtype = norm_operator(self, x, edge_index, edge_weight, False, self.add_self_loops)
    if isinstance(operator, Matrix) and dtype is x.dtype and not self.cached and self.K > 0 \
            and fits(x, self.lin):
        return lambda: _sg_planned(self, operator, x)

    def run():
        h = x
        for _ in range(self.K):
            h = apply_norm(operator, dtype, h)
            if self.cached:
                self._cached_x = h
        return linear(self.lin, h)

    return run


def _sg_planned(self, matrix, x):
    """`A^K·X·Wᵀ + b`, the dense product where it costs least."""
    lin = self.lin
    order = order_of(self, "sgc", matrix, x,
                     (lin.weight.size(0), lin.bias is not None, False, self.K))
    if order.kept is not None:
        return linear(lin, order.kept)
    if order.gathers_first:
        for sample in samplers(self, matrix, x, self.K):
            x = matrix(x, sample=sample)
        return linear(lin, x)
    h = combined(x, lin.weight, (None, None), None)
    *before, last = samplers(self, matrix, h, self.K)
    for sample in before:
        h = matrix(h, sample=sample)
    return matrix(h, lin.bias, last)


def _operator(self, x, edge_index, edge_weight, loops, cached=False):
    """The normalised product, or the plain one of a layer that does not normalise."""
    if self.normalize:
        return norm_operator(self, x, edge_index, edge_weight, False, loops, cached)
    only_sums(self)
    operator = gather(self, (x, x), edge_index, None, edge_weight)
    return operator, x.dtype if edge_weight is None else edge_weight.dtype


def tag(self, x, edge_index, edge_weight=None):
    check_features(x)
    operator, dtype = _operator(self, x, edge_index, edge_weight, False)

    def run():
        out, h = linear(self.lins[0], x), x
        lins = list(self.lins)[1:]
        for lin, sample in zip(lins, samplers(self, operator, x, len(lins))):
            h = apply_norm(operator, dtype, h, sample)
            out = out + (linear(lin, h) if fits(h, lin) else lin.forward(h))
        return out if self.bias is None else out + self.bias

    return run


def cheb(self, x, edge_index, edge_weight=None, batch=None, lambda_max=None):
    check_features(x)
    only_sums(self)
    edges = plain_edges(edge_index)
    require(edges is not None, "a sparse matrix")
    require(edges is edge_index, "an EdgeIndex")
    check_edges(edges)
    require(edge_weight is None, "edge weights")
    require(not isinstance(lambda_max, Tensor), "a tensor of eigenvalues")
    n = x.size(0)

    def make():
        return self.__norm__(edge_index, n, None, self.normalization, lambda_max, dtype=x.dtype,
                             batch=batch)

    with torch.no_grad():
        key = ("cheb", n, self.normalization, lambda_max, x.dtype)
        own, norm = derived(edges, key, make)
    check_weight(norm, own.size(1))
    operator, dtype = valued_matrix(own, norm, n, self.flow), norm.dtype

    def run():
        before, now = x, x
        out = linear(self.lins[0], x)
        samples = samplers(self, operator, x, len(self.lins) - 1)
        if len(self.lins) > 1:
            now = apply_norm(operator, dtype, x, samples[0])
            out = out + linear(self.lins[1], now)
        for lin, sample in zip(list(self.lins)[2:], samples[1:]):
            before, now = now, 2.0 * apply_norm(operator, dtype, now, sample) - before
            out = out + (linear(lin, now) if fits(now, lin) else lin.forward(now))
        return out if self.bias is None else out + self.bias

    return run


def appnp(self, x, edge_index, edge_weight=None):
    check_features(x)
    if self.dropout > 0 and self.training:
        return _appnp_dropped(self, x, edge_index, edge_weight)
    operator, dtype = _operator(self, x, edge_index, edge_weight, self.add_self_loops, self.cached)

    def run():
        h = x
        for sample in samplers(self, operator, x, self.K):
            h = apply_norm(operator, dtype, h, sample) * (1 - self.alpha)
            h = h + self.alpha * x
        return h

    return run


def _appnp_dropped(self, x, edge_index, edge_weight):
    """Each step drops some of the weights that the step before left."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    only_sums(self)
    edges = plain_edges(edge_index)
    require(edges is not None, "dropout of a sparse matrix")
    require(edges is edge_index, "dropout of an EdgeIndex")
    check_edges(edges)
    require(self.normalize and not self.cached and edge_weight is None,
            "dropout of weights that are given or cached")
    n, key = x.size(0), ("gcn_norm of ones", x.size(0), self.add_self_loops, self.flow, x.dtype)
    own, weight = derived(edges, key, lambda: gcn_norm(edge_index, None, n, False,
                                                       self.add_self_loops, self.flow, x.dtype))
    adjacency = edge_adjacency(own, n, n, self.flow, ordered=True)

    def run():
        h, left = x, weight
        for _ in range(self.K):
            left = F.dropout(left, p=self.dropout)
            h = weighted_sum(adjacency, h, left) * (1 - self.alpha)
            h = h + self.alpha * x
        return h

    return run


def gcn2(self, x, x_0, edge_index, edge_weight=None):
    check_features(x)
    check_features(x_0)
    operator, dtype = _operator(self, x, edge_index, edge_weight, self.add_self_loops, self.cached)

    def run():
        h = apply_norm(operator, dtype, x, *samplers(self, operator, x, 1))
        h = h * (1 - self.alpha)
        first = self.alpha * x_0[:h.size(0)]
        beta = self.beta
        if self.weight2 is None:
            out = h.add_(first)
            return torch.addmm(out, out, self.weight1, beta=1.0 - beta, alpha=beta)
        out = torch.addmm(h, h, self.weight1, beta=1.0 - beta, alpha=beta)
        return out + torch.addmm(first, first, self.weight2, beta=1.0 - beta, alpha=beta)

    return run
