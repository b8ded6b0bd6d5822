"""GAT, GATv2 and Transformer: scores, softmax and sum in one pass, nothing kept per edge."""

import math

import torch
from torch import Tensor

from .. import _dot as dot
from .. import _torch as ops
from .._inputs import (KEEP_LOOPS, ONE_LOOP, check_edges, edge_adjacency, plain_edges, require,
                      sparse_input)
from .._cache import derived
from .._dense import OWN, fits, fits_bias, linear
from .common import only_sums, pair_of, sizes_of


def _graph(self, x, edge_index, edge_attr, size, loops, ignores_values=False):
    """The adjacency with or without loops added, and the edges' features in its order. The values
    of a sparse tensor are features, too, which some layers ignore."""
    only_sums(self)
    dropped = self.dropout > 0 and self.training
    edges = plain_edges(edge_index)
    if edges is None:
        require(edge_attr is None and size is None, "edge features or a size beside a sparse matrix")
        return _sparse_graph(self, x, edge_index, loops, ignores_values), None
    check_edges(edges)
    n_sources, n_targets = sizes_of(self, x, edge_index, size)
    require(not loops or n_sources == n_targets, "self-loops of a bipartite graph")
    if edge_attr is None:
        how = ONE_LOOP if loops else KEEP_LOOPS
        return edge_adjacency(edges, n_targets, n_sources, self.flow, how, dropped), None
    require(isinstance(edge_attr, Tensor) and edge_attr.device.type == "cpu"
            and edge_attr.size(0) == edges.size(1), "edge features that do not fit")
    if loops:
        edges, edge_attr = _with_loops(self, edges, edge_attr, n_sources)
    return edge_adjacency(edges, n_targets, n_sources, self.flow, ordered=True), edge_attr


def _with_loops(self, edges, edge_attr, n):
    from torch_geometric.utils import add_self_loops, remove_self_loops

    kept, attr = remove_self_loops(edges, edge_attr)
    made, attr = add_self_loops(kept, attr, fill_value=self.fill_value, num_nodes=n)
    # The edges are the same every time, and their matrix is kept with the first.
    return derived(edges, ("with loops", n), lambda: (made,))[0], attr


def _sparse_graph(self, x, adj, loops, ignores_values):
    sparse = sparse_input(adj)
    require(sparse is not None and not sparse.flipped, "an adjacency of unknown kind")
    require(sparse.values is None or ignores_values and isinstance(adj, Tensor) and sparse.merged,
            "a sparse matrix with values")
    require(self.flow == "source_to_target", "a flow that sparse matrices do not have")
    n_targets, n_sources = sparse.size
    require(x[0].size(0) == n_sources and x[1].size(0) == n_targets,
            "sizes that contradict each other")
    if not loops:
        return sparse.adjacency
    require(n_targets == n_sources, "self-loops of a bipartite graph")
    # Edges of the matrix, then what an edge_index does with loops.
    edges = sparse.pattern()._derived("edges", lambda: _listed(adj))
    dropped = self.dropout > 0 and self.training
    return edge_adjacency(edges, n_targets, n_sources, loops=ONE_LOOP, ordered=dropped)


def _listed(adj):
    """Sources and targets of a sparse matrix' entries, row by row."""
    from torch_geometric.utils import to_edge_index

    row, col = to_edge_index(adj)[0] if isinstance(adj, Tensor) else adj.coo()[:2]
    return torch.stack([col, row])


def _dropout(self):
    if self.dropout > 0 and self.training:
        return float(self.dropout), ops.seed_from_torch()
    return 0.0, 0


def _shift(self, res, z):
    """The bias, where nothing comes between the sum over edges and it."""
    simple = self.concat and res is None and z.dtype in OWN
    return self.bias if simple and fits_bias(self.bias, z.dtype, z.size(1)) else None


def _finish(self, out, res, shift):
    if not self.concat:
        out = out.view(-1, self.heads, self.out_channels).mean(dim=1)
    if res is not None:
        out = out + res
    return out if self.bias is None or shift is not None else out + self.bias


def _same_type(*tensors):
    """The tensors in one type, as arithmetic between them would have it."""
    given = [tensor for tensor in tensors if tensor is not None]
    dtype = given[0].dtype
    for tensor in given[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return [None if tensor is None else tensor.to(dtype) for tensor in tensors]


def gat(self, x, edge_index, edge_attr=None, size=None, return_attention_weights=None):
    require(return_attention_weights is None, "attention weights to be returned")
    single = isinstance(x, Tensor)
    source, target = pair_of(x)
    require(target is not None, "targets without features")
    lin = _one_map(self, single)
    require(lin is not None or self.lin_src is not None, "no linear map")
    has_edges = edge_attr is not None and self.lin_edge is not None
    adjacency, attr = _graph(self, (source, target), edge_index,
                             edge_attr if has_edges else None, size, self.add_self_loops,
                             self.lin_edge is None)

    def run():
        res = _residual(self, target)
        if lin is not None:
            z = linear(lin, source)
            own = None if single else linear(lin, target)
        else:
            z, own = linear(self.lin_src, source), linear(self.lin_dst, target)
        bias = None if attr is None else _edge_scores(self, attr)
        heads = (self.heads, self.out_channels)
        z, own, _ = _same_type(z, own, self.att_src)
        how = (adjacency, float(self.negative_slope), *_dropout(self))
        vectors, shift = (self.att_dst.view(heads), self.att_src.view(heads)), _shift(self, res, z)
        out = ops.gat(z, own, *vectors, bias, shift, how)
        return _finish(self, out, res, shift)

    return run


def _one_map(self, single):
    """The linear map of both ends, where they have one; torch_geometric before 2.6 calls it by two
    names."""
    if hasattr(self, "lin"):
        return self.lin
    return self.lin_src if single and self.lin_src is self.lin_dst else None


def _residual(self, target):
    res = getattr(self, "res", None)
    return None if res is None else res(target)


def _edge_scores(self, attr):
    """`Σ_c att_hc · (W·f)_hc` for each edge and head: the vectors go through the weights first, so
    that edges have `heads` numbers and not `heads · channels`."""
    if attr.dim() == 1:
        attr = attr.view(-1, 1)
    if type(self.lin_edge).__module__ == "torch_geometric.nn.dense.linear" \
            and self.lin_edge.bias is None and not self.lin_edge._forward_hooks \
            and not self.lin_edge._forward_pre_hooks:
        weight = self.lin_edge.weight.view(self.heads, self.out_channels, -1)
        folded = (self.att_edge.view(self.heads, self.out_channels, 1) * weight).sum(1)
        return attr @ folded.t()
    features = self.lin_edge(attr).view(-1, self.heads, self.out_channels)
    return (features * self.att_edge).sum(-1)


def gatv2(self, x, edge_index, edge_attr=None, return_attention_weights=None):
    require(return_attention_weights is None, "attention weights to be returned")
    single = isinstance(x, Tensor)
    source, target = pair_of(x)
    require(target is not None, "targets without features")
    require(edge_attr is None or self.lin_edge is not None, "edge features without weights")
    adjacency, attr = _graph(self, (source, target), edge_index, edge_attr, None,
                             self.add_self_loops)

    def run():
        res = _residual(self, target)
        z = linear(self.lin_l, source)
        own = z if single and self.share_weights else linear(self.lin_r, target)
        features = None if attr is None else _edge_features(self, attr)
        own, z, features, _ = _same_type(own, z, features, self.att)
        how = (adjacency, float(self.negative_slope), *_dropout(self))
        vectors, shift = self.att.view(self.heads, self.out_channels), _shift(self, res, z)
        out = ops.gatv2(own, z, vectors, features, shift, how)
        return _finish(self, out, res, shift)

    return run


def _edge_features(self, attr):
    return self.lin_edge(attr.view(-1, 1) if attr.dim() == 1 else attr)


def transformer(self, x, edge_index, edge_attr=None, return_attention_weights=None):
    require(return_attention_weights is None, "attention weights to be returned")
    source, target = pair_of(x)
    require(target is not None, "targets without features")
    require((edge_attr is None) == (self.lin_edge is None), "edge features without weights")
    adjacency, attr = _graph(self, (source, target), edge_index, edge_attr, None, False)

    adds_root = self.root_weight and self.concat and self.lin_beta is None
    maps = (self.lin_query, self.lin_key, self.lin_value, self.lin_skip if adds_root else None)

    def run():
        features = None if attr is None else self.lin_edge(attr)
        how = (adjacency, self.heads, 1.0 / math.sqrt(self.out_channels), *_dropout(self))
        if _is_one_operation((source, target), features, maps):
            own = None if target is source else target
            parameters = (one for lin in maps for one in _parameters(lin))
            out = dot.layer((source, own, features, *parameters), how)
            if adds_root:
                return out
        else:
            ends = [linear(lin, x) for lin, x in zip(maps, (target, source, source))]
            out = dot.dot_attention(*_same_type(*ends, features), how)
        if not self.concat:
            out = out.view(-1, self.heads, self.out_channels).mean(dim=1)
        if not self.root_weight:
            return out
        skipped = linear(self.lin_skip, target)
        if self.lin_beta is None:
            # Nobody else has what a linear map made here.
            own = out.dtype is skipped.dtype and fits(target, self.lin_skip)
            return skipped.add_(out) if own else out + skipped
        beta = self.lin_beta(torch.cat([out, skipped, out - skipped], dim=-1)).sigmoid()
        return beta * skipped + (1 - beta) * out

    return run


def _is_one_operation(ends, features, maps):
    """Whether a Transformer's maps can be computed with its attention."""
    (source, target), (query, key, value, skip) = ends, maps
    own = (query,) if skip is None else (query, skip)
    return target.dtype is source.dtype and fits(source, key, value) and fits(target, *own) \
        and (key.bias is None) == (value.bias is None) \
        and (features is None or features.dtype is source.dtype)


def _parameters(lin):
    return (None, None) if lin is None else (lin.weight, lin.bias)
