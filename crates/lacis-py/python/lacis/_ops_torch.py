"""The operators of :mod:`lacis.ops` on torch tensors, with gradients."""

import torch

from . import _lacis
from . import _torch as kernels
from ._backward import first_order
from ._dot import dot_attention
from ._inputs import Decline, edge_adjacency, is_sparse_tensor, segments_of, sparse_input
from ._graphs import Graph
from ._layers.common import requires_grad
from ._ops_numpy import _of_graph

_NAMES = ("sum", "mean", "max", "min", "mul")
_OPS = {"dot": 0, "add": 1, "mul": 2}


def _rows(x, name):
    """A tensor as a matrix that kernels can read."""
    if not isinstance(x, torch.Tensor):
        x = torch.as_tensor(x)
    if x.dtype not in kernels.NUMBERS:
        raise TypeError(f"{name} is {x.dtype}; float32, float64 or bfloat16 would be right")
    if x.device.type != "cpu":
        raise ValueError(f"{name} is on {x.device}; lacis.ops works on CPUs")
    if x.layout is not torch.strided:
        raise TypeError(f"{name} is sparse; {name}.to_dense() would be right")
    if x.dim() == 0:
        raise ValueError(f"{name} must have rows")
    return x.reshape(x.size(0), x[0].numel() if x.size(0) else x[:0].numel())


def _indices(given, name):
    """Numbers of nodes, edges or rows: 64-bit unless they are 32-bit."""
    given = torch.as_tensor(given)
    if given.numel() and (given.is_floating_point() or given.is_complex()):
        raise TypeError(f"{name} must be integers, not {given.dtype}")
    return given if given.dtype in (torch.int32, torch.int64) else given.long()


def _edges(edges, n_targets, n_sources):
    """The adjacency, and the weights that come with it."""
    try:
        if isinstance(edges, Graph):
            weights = None if edges.values is None else torch.from_numpy(edges.values.copy())
            return _of_graph(edges), weights
        if isinstance(edges, torch.Tensor) and edges.layout is torch.sparse_csc:
            edges = edges.to_sparse_csr()
        if is_sparse_tensor(edges) or (isinstance(edges, torch.Tensor)
                                       and edges.layout is not torch.strided):
            if requires_grad(edges):
                raise ValueError("values of a sparse matrix have no gradient here; edges and "
                                 "weight= have")
            sparse = sparse_input(edges)
            return sparse.adjacency, sparse.values
        edges = _indices(edges, "edges")
        if edges.dim() != 2 or edges.size(0) != 2:
            raise ValueError(f"edges have shape {tuple(edges.shape)}; sources and targets, "
                             "(2, edges), a Graph or a sparse matrix would be right")
        if n_targets is None:
            n_targets = max(n_sources, int(edges[1].max()) + 1 if edges.numel() else 0)
        return edge_adjacency(edges, n_targets, n_sources, ordered=True), None
    except Decline as declined:
        raise ValueError(str(declined)) from None


def _fits(x, count, name):
    if x.size(0) != count:
        raise ValueError(f"{name} has {x.size(0)} rows, expected {count}")


def _degrees(adjacency, dtype):
    degrees = torch.empty(adjacency.shape[0], dtype=torch.float64)
    adjacency.degrees(1, kernels.raw_list(degrees))
    return degrees.clamp(min=1).to(dtype).unsqueeze(1)


def spmm(edges, x, weight, reduce, num_nodes):
    shape, rows, name = x.shape, _rows(x, "x"), _NAMES[reduce]
    adjacency, own = _edges(edges, num_nodes, rows.size(0))
    _fits(rows, adjacency.shape[1], "x")
    if weight is not None and not isinstance(weight, torch.Tensor):
        weight = torch.as_tensor(weight, dtype=rows.dtype)
    weight = own if weight is None else weight.reshape(-1)
    if weight is not None and weight.numel() != adjacency.shape[2]:
        raise ValueError(f"there are {weight.numel()} weights for {adjacency.shape[2]} edges")
    if name in ("sum", "mean"):
        y = (kernels.Matrix(adjacency)(rows) if weight is None
             else kernels.weighted(adjacency, rows, weight.to(rows.dtype)))
        y = y / _degrees(adjacency, y.dtype) if name == "mean" else y
    else:
        if weight is not None and weight.requires_grad:
            raise ValueError(f"weights of a {name} have no gradient here; weight.detach()")
        y = kernels.extreme(adjacency, rows, name, kernels.SPLIT_EVENLY, weight)
    return y.view(y.size(0), *shape[1:])


class _Sddmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, v, adjacency, op, heads):
        ctx.save_for_backward(u, v)
        u, v = kernels.as_rows(u), kernels.as_rows(v)
        columns = heads if op == 0 else u.size(1)
        out = torch.empty((adjacency.shape[2], columns), dtype=kernels.SUMS[u.dtype])
        _lacis.sddmm(adjacency, kernels.NUMBERS[u.dtype],
                     (kernels.raw(u), kernels.raw(v), kernels.raw(out), op, heads),
                     kernels.threads())
        ctx.adjacency, ctx.op = adjacency, op
        return out.to(u.dtype)

    @staticmethod
    @first_order
    def backward(ctx, grad):
        u, v = (kernels.as_rows(one) for one in ctx.saved_tensors)
        grad = kernels.as_rows(grad.to(kernels.SUMS[u.dtype]))
        grads = []
        for needed, own, other, transposed in zip(ctx.needs_input_grad, (u, v), (v, u),
                                                  (False, True)):
            if not needed:
                grads.append(None)
                continue
            out = torch.empty_like(own)
            _lacis.sddmm_backward(ctx.adjacency, kernels.NUMBERS[u.dtype],
                                  (kernels.raw(other), kernels.raw(grad), kernels.raw(out), ctx.op,
                                   transposed), kernels.threads())
            grads.append(out)
        return *grads, None, None, None


def sddmm(edges, u, v, op, heads):
    u, v = _rows(u, "u"), _rows(v, "v")
    adjacency, _ = _edges(edges, u.size(0), v.size(0))
    _fits(u, adjacency.shape[0], "u")
    _fits(v, adjacency.shape[1], "v")
    if u.size(1) != v.size(1) or (op == "dot" and u.size(1) % heads):
        raise ValueError(f"u and v have {u.size(1)} and {v.size(1)} columns for {heads} heads")
    out = _Sddmm.apply(u, v.to(u.dtype), adjacency, _OPS[op], heads)
    return out[:, 0] if op == "dot" and heads == 1 else out


def attention(edges, query, key, value, heads, scale):
    query, key, value = _rows(query, "query"), _rows(key, "key"), _rows(value, "value")
    adjacency, _ = _edges(edges, query.size(0), key.size(0))
    _fits(query, adjacency.shape[0], "query")
    _fits(key, adjacency.shape[1], "key")
    _fits(value, adjacency.shape[1], "value")
    if query.size(1) != key.size(1) or query.size(1) % heads or value.size(1) % heads:
        raise ValueError(f"columns of query, key and value do not make {heads} heads")
    scale = max(query.size(1) // heads, 1) ** -0.5 if scale is None else float(scale)
    return dot_attention(query, key.to(query.dtype), value.to(query.dtype), None,
                         (adjacency, heads, scale, 0.0, 0))


def _segments(index, count):
    index = _indices(index, "index").reshape(-1).long()
    if count is None:
        count = int(index.max()) + 1 if index.numel() else 0
    if count < 0:
        raise IndexError(f"the index names segments outside 0..{count}")
    try:
        return index, segments_of(index, int(count))
    except Decline as declined:
        raise IndexError(str(declined)) from None


def _targets(edges):
    if isinstance(edges, Graph):
        return torch.from_numpy(edges.edge_index[1])
    if isinstance(edges, torch.Tensor) and edges.layout is not torch.strided:
        return edges.to_sparse_coo().coalesce().indices()[0]
    if is_sparse_tensor(edges):
        return edges.coo()[0]
    edges = torch.as_tensor(edges)
    return edges[1] if edges.dim() == 2 else edges


def edge_softmax(edges, scores, num_nodes):
    rows = _rows(scores, "scores")
    _, segments = _segments(_targets(edges), num_nodes)
    _fits(rows, segments.shape[1], "scores")
    return kernels.segment_softmax(rows, segments).view(scores.shape)


def scatter(x, index, dim_size, reduce):
    rows = _rows(x, "x")
    index, segments = _segments(index, dim_size)
    _fits(rows, index.numel(), "x")
    y = kernels.segment_reduce(rows, index, segments, _NAMES[reduce])
    return y.view(y.size(0), *x.shape[1:])


def segment_reduce(x, ptr, reduce):
    ptr = _indices(ptr, "ptr").reshape(-1).long()
    lengths = ptr.diff()
    if ptr.numel() == 0 or int(ptr[0]) != 0 or int(ptr[-1]) != x.size(0) or (lengths < 0).any():
        raise ValueError("ptr must ascend from 0 to the number of rows")
    index = torch.repeat_interleave(torch.arange(lengths.numel()), lengths)
    return scatter(x, index, lengths.numel(), reduce)


def gather(x, index):
    x, index = torch.as_tensor(x), _indices(index, "index").long()
    if x.dim() == 0:
        raise ValueError("x must have rows")
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < x.size(0):
        raise IndexError(f"the index names a row outside 0..{x.size(0)}")
    return x.index_select(0, index)
