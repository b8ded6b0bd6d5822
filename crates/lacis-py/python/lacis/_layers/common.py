"""What the fused layers share: which inputs they take, and the sparse products they stand for."""

import torch
from torch import Tensor

from .. import _torch as ops
from .._cache import derived
from .._dense import any_global_hook, any_hook
from .._inputs import (check_edges, check_features, declared_size, edge_adjacency, is_plain,
                      is_sparse_tensor, mean_matrix, normalised, plain_edges, plain_matrix,
                      require, sparse_input, valued_matrix)
from .._patch import is_pygs
from .cached import Promised

_AGGREGATIONS = {"SumAggregation": "sum", "MeanAggregation": "mean", "MaxAggregation": "max",
                 "MinAggregation": "min"}


def aggregation(layer):
    """What becomes of several messages: sum, mean, max or min; declines for anything else."""
    module = layer.aggr_module
    kind = type(module)
    require(kind.__module__ == "torch_geometric.nn.aggr.basic" and kind.__name__ in _AGGREGATIONS,
            f"aggregation {layer.aggr!r}")
    require(not any_hook(module), "a hook on the aggregation")
    require(not any_global_hook(), "a hook on all modules")
    reduce = _AGGREGATIONS[kind.__name__]
    names = {"sum": ("sum", "add")}.get(reduce, (reduce,))
    require(layer.aggr in names, "an aggregation of another name")
    return reduce


def only_sums(layer):
    require(aggregation(layer) == "sum", f"aggregation {layer.aggr!r} with normalised weights")


def pair_of(x):
    """Features of sources and of targets, the latter perhaps None."""
    if isinstance(x, Tensor):
        check_features(x)
        return x, x
    require(isinstance(x, (tuple, list)) and len(x) == 2, "features that are no pair")
    check_features(x[0])
    if x[1] is not None:
        check_features(x[1])
    return x[0], x[1]


def sizes_of(layer, x, edge_index, size):
    """(sources, targets) as `propagate` would find them; declines where it would complain."""
    source, target = x
    require(layer.flow == "source_to_target" or source is target,
            "a bipartite graph from targets to sources")
    if size is None and type(edge_index) is Tensor:
        n = source.shape[0]
        return n, n if target is None or target is source else target.shape[0]
    found = [source.size(0), None if target is None else target.size(0)]
    named = declared_size(edge_index)
    if named == (None, None) and size is not None:
        require(isinstance(size, (tuple, list)) and len(size) == 2, "a size that is no pair")
        named = tuple(size)
    if layer.flow != "source_to_target":
        named = named[::-1]
    for own, given in zip(found, named):
        require(own is None or given is None or own == given, "sizes that contradict each other")
    n_targets = found[1] if found[1] is not None else named[1]
    return found[0], found[0] if n_targets is None else n_targets


def gather(layer, x, edge_index, size, edge_weight=None, pattern=False):
    """A function of the sources' features that gives their sum, mean, maximum or minimum at each
    target, weighted where edges have weights. `pattern`: of a `SparseTensor` only the pattern
    counts."""
    reduce = aggregation(layer)
    edges = plain_edges(edge_index)
    if edges is None:
        return _gather_sparse(layer, x, edge_index, reduce, (edge_weight, pattern))
    check_edges(edges)
    n_sources, n_targets = sizes_of(layer, x, edge_index, size)
    if edge_weight is not None:
        require(reduce == "sum" or edges is edge_index, f"{reduce} over an EdgeIndex")
        return _gather_weighted(edges, (n_targets, n_sources), layer.flow, reduce, edge_weight)
    if reduce == "sum":
        return plain_matrix(edges, n_targets, n_sources, layer.flow)
    if reduce == "mean":
        return mean_matrix(edges, n_targets, n_sources, layer.flow)
    adjacency = edge_adjacency(edges, n_targets, n_sources, layer.flow)
    require(edges is edge_index, f"{reduce} over an EdgeIndex")
    return lambda h: ops.extreme(adjacency, h, reduce, ops.SPLIT_WITH_ZERO)


def check_weight(weight, n_edges):
    require(isinstance(weight, Tensor) and is_plain(weight) and weight.dim() == 1
            and weight.layout is torch.strided, "edge weights that are not a plain vector")
    require(weight.numel() == n_edges, "not one weight per edge")
    require(weight.dtype in ops.NUMBERS, f"{weight.dtype} edge weights")


def _gather_weighted(edges, sizes, flow, reduce, weight):
    check_weight(weight, edges.size(1))
    require(reduce == "sum" or (reduce in ("max", "min") and not weight.requires_grad),
            f"{reduce} of weighted messages")
    adjacency = edge_adjacency(edges, *sizes, flow, ordered=True)
    if reduce == "sum":
        return lambda h: weighted_sum(adjacency, h, weight)

    def largest(h):
        h = promoted(h, weight)
        return ops.extreme(adjacency, h, reduce, ops.SPLIT_WITH_ZERO, weight)

    return largest


def promoted(h, weight):
    """The features in the type that a product with the weights has."""
    return h.to(torch.promote_types(h.dtype, weight.dtype))


def weighted_sum(adjacency, h, weight):
    """Weighted messages added, with gradients of features and weights."""
    h = promoted(h, weight)
    return ops.weighted(adjacency, h, weight.to(ops.SUMS[h.dtype]))


def _gather_sparse(layer, x, adj, reduce, how):
    edge_weight, pattern = how
    require(edge_weight is None, "edge weights beside a sparse matrix")
    require(layer.fuse and layer.flow == "source_to_target", "a sparse matrix that is not fused")
    require(not requires_grad(adj), "a sparse matrix whose values need a gradient")
    sparse = sparse_input(adj)
    require(sparse is not None, "an adjacency of unknown kind")
    if pattern and is_sparse_tensor(adj):
        sparse = sparse.pattern()
    n_targets, n_sources = sparse.size
    require(x[0].size(0) == n_sources and (x[1] is None or x[1].size(0) == n_targets),
            "sizes that contradict each other")
    return sparse_product(sparse, x[0].dtype, reduce)


def requires_grad(adj):
    needs = adj.requires_grad
    return needs() if callable(needs) else needs


def sparse_product(sparse, dtype, reduce):
    """The product with a sparse matrix as `torch_geometric.utils.spmm` has it."""
    values = sparse.values
    require(values is None or values.dtype is dtype, "values and features of different types")
    if reduce == "sum":
        return sparse.matrix()
    if reduce == "mean":
        require(sparse.merged, "a matrix that repeats entries")
        return sparse.mean()
    require(not sparse.flipped, "a maximum of a matrix by columns")
    require(sparse.merged, "a matrix that repeats entries")
    constants = sparse.constants()
    return lambda h: ops.extreme(sparse.adjacency, h, reduce, ops.FIRST, constants)


def norm_operator(layer, x, edge_index, edge_weight, improved=False, loops=True, cached=False):
    """The product with the normalised adjacency, as `gcn_norm` has it, and its number type."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    only_sums(layer)
    require(is_pygs(gcn_norm), "another gcn_norm")
    n = x.size(0)
    edges = plain_edges(edge_index)
    if edges is None:
        return _norm_sparse(layer, x, edge_index, edge_weight, improved, loops, cached), x.dtype
    check_edges(edges)
    sizes_of(layer, (x, x), edge_index, None)
    if cached and layer._cached_edge_index is not None:
        kept = layer._cached_edge_index
        if type(kept) is Promised and (kept.matrix.shape[0], kept.flow) == (n, layer.flow):
            return kept.matrix, kept.dtype
        own, weight = kept
        return _cached_norm(layer, own, weight, n), weight.dtype
    if edge_weight is None:
        matrix = normalised(edges, n, layer.flow, loops)
        if cached:
            layer._cached_edge_index = Promised(matrix, layer.flow, x.dtype)
        return matrix, x.dtype
    check_weight(edge_weight, edges.size(1))
    key = ("gcn_norm", n, improved, loops, layer.flow)
    if edge_weight.requires_grad and torch.is_grad_enabled():
        pair = gcn_norm(edge_index, edge_weight, n, improved, loops, layer.flow, x.dtype)
        # The edges are the same every time, and their matrix is kept with the first.
        own = derived(edges, key, lambda: (plain_edges(pair[0]),))[0]
        if cached:
            layer._cached_edge_index = pair
        adjacency = edge_adjacency(own, n, n, layer.flow, ordered=True)
        weight = pair[1]
        return (lambda h: weighted_sum(adjacency, h, weight)), weight.dtype
    pair = derived(edges, key, lambda: gcn_norm(edge_index, edge_weight, n, improved, loops,
                                                layer.flow, x.dtype), others=(edge_weight,))
    if cached:
        layer._cached_edge_index = pair
    own, weight = plain_edges(pair[0]), pair[1]
    require(weight.dtype in ops.NUMBERS, f"{weight.dtype} edge weights")
    return valued_matrix(own, weight, n, layer.flow), weight.dtype


def _cached_norm(layer, edge_index, weight, n):
    """The matrix of what a layer with `cached=True` kept of its first graph."""
    edges = plain_edges(edge_index)
    require(edges is not None and isinstance(weight, Tensor), "a cached graph of unknown kind")
    check_edges(edges)
    check_weight(weight, edges.size(1))
    if weight.requires_grad:
        adjacency = edge_adjacency(edges, n, n, layer.flow, ordered=True)
        return lambda h: weighted_sum(adjacency, h, weight)

    def make():
        return valued_matrix(edges, weight, n, layer.flow)

    return derived(edges, ("norm of", n, layer.flow), make, others=(weight,))


def _norm_sparse(layer, x, adj, edge_weight, improved, loops, cached):
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    require(not requires_grad(adj), "a sparse matrix whose values need a gradient")
    require(layer.fuse and layer.flow == "source_to_target", "a sparse matrix that is not fused")
    sparse = sparse_input(adj)
    require(sparse is not None, "an adjacency of unknown kind")
    require(not sparse.flipped, "a matrix by columns to normalise")
    require(edge_weight is None, "edge weights beside a sparse matrix")
    n = x.size(0)
    require(sparse.size == (n, n), "sizes that contradict each other")
    is_tensor = isinstance(adj, Tensor)
    if cached:
        kept = layer._cached_edge_index[0] if is_tensor and layer._cached_edge_index else \
            None if is_tensor else layer._cached_adj_t
        if kept is not None:
            own = sparse_input(kept)
            require(own is not None, "a cached graph of unknown kind")
            return sparse_product(own, x.dtype, "sum")

    def make():
        return (gcn_norm(adj, edge_weight, n, improved, loops, layer.flow, x.dtype),)

    result = sparse._derived(("gcn_norm", improved, loops, x.dtype), make)[0]
    if cached:
        setattr(layer, "_cached_edge_index" if is_tensor else "_cached_adj_t", result)
    own = sparse_input(result[0] if is_tensor else result)
    return sparse_product(own, x.dtype, "sum")


def apply_norm(operator, dtype, h, sample=None):
    """The product in the type that messages with normalised weights have; `sample` computes its
    gradient from some of the pairs."""
    h = h.to(torch.promote_types(h.dtype, dtype))
    return operator(h) if sample is None else operator(h, sample=sample)
