"""The operators of :mod:`lacis.ops` on NumPy arrays."""

from weakref import WeakKeyDictionary

import numpy as np

from . import _arrays, _lacis
from ._graphs import Graph

_NUMBERS = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}
_OPS = {"dot": 0, "add": 1, "mul": 2}
# What is made of a graph, as long as the graph is there.
_adjacencies = WeakKeyDictionary()


def threads():
    """As many as the command would use."""
    return _lacis.default_threads()[0]


def matrix(x, name):
    """Rows of floats, in memory one after another: float64 stays so, all else is float32."""
    x = _arrays.to_numpy(x)
    x = _arrays.floats(x, name, np.float64 if x.dtype == np.float64 else np.float32)
    if x.ndim == 0:
        raise ValueError(f"{name} must have rows")
    return x.reshape(len(x), -1) if x.size else x.reshape(len(x), int(np.prod(x.shape[1:])))


def _raw(x):
    return (x.ctypes.data, x.shape[0], x.shape[1], x.shape[1])


def _raw_list(x):
    return (x.ctypes.data, x.size)


class Edges:
    """Who sends to whom: targets as rows, sources as columns, and weights if there are any."""

    def __init__(self, edges, num_nodes, sources):
        self.weights = None
        if isinstance(edges, Graph):
            self.adjacency = _of_graph(edges)
            self.weights = edges.values
        elif hasattr(edges, "tocsr"):
            rows = edges.tocsr()
            self.adjacency = _of_rows(rows.indptr, rows.indices, rows.shape[1])
            self.weights = rows.data
        else:
            self.adjacency = _of_list(_arrays.indices(edges, "edges"), num_nodes, sources)

    @property
    def shape(self):
        return self.adjacency.shape


def _of_graph(graph):
    kept = _adjacencies.get(graph)
    if kept is None:
        kept = _adjacencies[graph] = _of_rows(graph.indptr, graph.indices, graph.num_nodes)
    return kept


def _of_rows(indptr, indices, n_cols):
    narrow = indptr.dtype.itemsize == 4 and indices.dtype.itemsize == 4
    dtype = np.int32 if narrow else np.int64
    indptr, indices = (np.ascontiguousarray(of).astype(dtype, copy=False)
                       for of in (indptr, indices))
    return _lacis.Adjacency.from_csr(_raw_list(indptr), _raw_list(indices),
                                     (n_cols, indptr.itemsize), threads())


def _of_list(edges, num_nodes, sources):
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError(f"edges have shape {edges.shape}; sources and targets, (2, edges), a "
                         "Graph or a SciPy matrix would be right")
    source, target = edges
    n_rows = num_nodes
    if n_rows is None:
        n_rows = max(sources, int(target.max()) + 1 if target.size else 0)
    if source.size and (min(source.min(), target.min()) < 0 or source.max() >= sources
                        or target.max() >= n_rows):
        raise IndexError(f"an edge names a node outside 0..{sources} or 0..{n_rows}")
    given = (target.ctypes.data, source.ctypes.data, source.size, 8)
    return _lacis.Adjacency.from_edges(given, (n_rows, sources), (0, True), threads())


def _values(edges, weight, dtype):
    """The weights in the adjacency's own order."""
    weight = edges.weights if weight is None else weight
    if weight is None:
        return None
    weight = _arrays.floats(weight, "weight", dtype).reshape(-1)
    if weight.size != edges.shape[2]:
        raise ValueError(f"there are {weight.size} weights for {edges.shape[2]} edges")
    if not edges.adjacency.permuted:
        return weight
    out = np.empty_like(weight)
    edges.adjacency.arrange(_NUMBERS[out.dtype], (_raw_list(weight), _raw_list(out)),
                            (False, threads()))
    return out


def _fits(x, count, name):
    if len(x) != count:
        raise ValueError(f"{name} has {len(x)} rows, expected {count}")


def spmm(edges, x, weight, reduce, num_nodes):
    x, shape = matrix(x, "x"), np.shape(x)
    edges = Edges(edges, num_nodes, len(x))
    _fits(x, edges.shape[1], "x")
    values = _values(edges, weight, x.dtype)
    y = np.empty((edges.shape[0], x.shape[1]), x.dtype)
    which = (False, reduce, 0, 0, 0 if values is None else values.ctypes.data, 0, False)
    _lacis.spmm(edges.adjacency, _NUMBERS[x.dtype], (_raw(x), _raw(y), which), threads())
    return y.reshape(len(y), *shape[1:])


def sddmm(edges, u, v, op, heads):
    u, v = matrix(u, "u"), matrix(v, "v")
    v = v.astype(u.dtype, copy=False)
    edges = Edges(edges, len(u), len(v))
    _fits(u, edges.shape[0], "u")
    _fits(v, edges.shape[1], "v")
    if u.shape[1] != v.shape[1] or (op == "dot" and u.shape[1] % heads):
        raise ValueError(f"u and v have {u.shape[1]} and {v.shape[1]} columns for {heads} heads")
    out = np.empty((edges.shape[2], heads if op == "dot" else u.shape[1]), u.dtype)
    _lacis.sddmm(edges.adjacency, _NUMBERS[u.dtype],
                 (_raw(u), _raw(v), _raw(out), _OPS[op], heads), threads())
    return out[:, 0] if op == "dot" and heads == 1 else out


def attention(edges, query, key, value, heads, scale):
    query, key, value = matrix(query, "query"), matrix(key, "key"), matrix(value, "value")
    key, value = (x.astype(query.dtype, copy=False) for x in (key, value))
    edges = Edges(edges, len(query), len(key))
    _fits(query, edges.shape[0], "query")
    _fits(key, edges.shape[1], "key")
    _fits(value, edges.shape[1], "value")
    if query.shape[1] != key.shape[1] or query.shape[1] % heads or value.shape[1] % heads:
        raise ValueError(f"columns of query, key and value do not make {heads} heads")
    if scale is None:
        scale = max(query.shape[1] // heads, 1) ** -0.5
    y = np.empty((len(query), value.shape[1]), query.dtype)
    lse = np.empty((len(query), heads), query.dtype)
    given, ends = (_raw(query), heads, float(scale)), (_raw(key), _raw(value))
    _lacis.dot_attention(edges.adjacency, _NUMBERS[query.dtype],
                         (given, ends, (None, None, 0.0, 0), _raw(y), _raw(lse)), threads())
    return y


def _segments(index, count):
    index = _arrays.indices(index, "index").reshape(-1)
    if count is None:
        count = int(index.max()) + 1 if index.size else 0
    if index.size and (index.min() < 0 or index.max() >= count):
        raise IndexError(f"the index names segments outside 0..{count}")
    return _lacis.Segments(_raw_list(index), (8, count), threads())


def targets_of(edges):
    """The target of every edge, in the caller's order."""
    if isinstance(edges, Graph):
        return edges.edge_index[1]
    if hasattr(edges, "tocsr"):
        rows = edges.tocsr()
        return np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    edges = _arrays.indices(edges, "edges")
    return edges[1] if edges.ndim == 2 else edges


def edge_softmax(edges, scores, num_nodes):
    x, shape = matrix(scores, "scores"), np.shape(scores)
    segments = _segments(targets_of(edges), num_nodes)
    _fits(x, segments.shape[1], "scores")
    y = np.empty_like(x)
    _lacis.segment_softmax(segments, _NUMBERS[x.dtype], (_raw(x), _raw(y)), threads())
    return y.reshape(shape)


def scatter(x, index, dim_size, reduce):
    x, shape = matrix(x, "x"), np.shape(x)
    segments = _segments(index, dim_size)
    _fits(x, segments.shape[1], "x")
    y = np.empty((segments.shape[0], x.shape[1]), x.dtype)
    _lacis.segment_reduce(segments, _NUMBERS[x.dtype], (_raw(x), _raw(y), reduce), threads())
    return y.reshape(len(y), *shape[1:])


def segment_reduce(x, ptr, reduce):
    ptr = _arrays.indices(ptr, "ptr").reshape(-1)
    if ptr.size == 0 or ptr[0] != 0 or ptr[-1] != len(x) or (np.diff(ptr) < 0).any():
        raise ValueError("ptr must ascend from 0 to the number of rows")
    index = np.repeat(np.arange(ptr.size - 1), np.diff(ptr))
    return scatter(x, index, ptr.size - 1, reduce)


def gather(x, index):
    x, index = _arrays.to_numpy(x), _arrays.indices(index, "index")
    if index.size and not 0 <= index.min() <= index.max() < len(x):
        raise IndexError(f"the index names a row outside 0..{len(x)}")
    return np.take(x, index, axis=0)
