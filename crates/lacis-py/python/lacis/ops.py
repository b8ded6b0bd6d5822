"""The operators that graph networks are made of, on NumPy arrays or torch tensors.

``edges`` are sources and targets, ``(2, edges)``; a :class:`lacis.Graph`; or a sparse matrix
(SciPy's; with tensors, torch's or torch_sparse's) whose rows are targets. Results have the order
that the caller's edges have. Tensors in, tensors out, with gradients; arrays in, arrays out.

>>> lacis.ops.spmm([[0, 1, 2], [1, 1, 0]], np.eye(3, dtype=np.float32))
array([[0., 0., 1.],
       [1., 1., 0.],
       [0., 0., 0.]], dtype=float32)
"""

import sys
from operator import index

__all__ = ["spmm", "sddmm", "edge_softmax", "attention", "segment_reduce", "scatter", "gather"]

_REDUCE = {"sum": 0, "add": 0, "mean": 1, "max": 2, "amax": 2, "min": 3, "amin": 3, "mul": 4}


def _half(*arrays):
    """The half that knows these arrays: torch's where one of them is a tensor."""
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(array, torch.Tensor) for array in arrays):
        from . import _ops_torch as half
    else:
        from . import _ops_numpy as half
    return half


def _code(reduce):
    if reduce not in _REDUCE:
        raise ValueError(f"reduce={reduce!r}; one of {', '.join(_REDUCE)} would be right")
    return _REDUCE[reduce]


def _heads(count):
    try:
        heads = index(count)
    except TypeError:
        heads = 0
    if heads < 1:
        raise ValueError(f"heads={count!r}; 1 or more would be right")
    return heads


def spmm(edges, x, weight=None, *, reduce="sum", num_nodes=None):
    """``y_i``, the rows ``weight_e · x_j`` of all edges ``e`` from ``j`` to ``i`` as one.

    ``reduce`` is sum, mean, max or min; a node without edges has zeros. ``num_nodes`` is the number
    of targets where ``edges`` do not say it. A graph's or matrix' own weights count unless
    ``weight`` is given.
    """
    if reduce == "mul":
        raise ValueError("reduce='mul' is for scatter and segment_reduce")
    return _half(x, weight).spmm(edges, x, weight, _code(reduce), num_nodes)


def sddmm(edges, u, v, *, op="dot", heads=1):
    """For every edge from ``j`` to ``i``: the dot product of ``u_i`` and ``v_j``, head by head, or
    with ``op="add"`` or ``"mul"`` their sum or product."""
    if op not in ("dot", "add", "mul"):
        raise ValueError(f"op={op!r}; 'dot', 'add' or 'mul' would be right")
    return _half(u, v).sddmm(edges, u, v, op, _heads(heads))


def edge_softmax(edges, scores, *, num_nodes=None):
    """Softmax of the edges' scores over the edges of each target; ``edges`` may be the targets
    alone. Columns, such as heads, are apart."""
    return _half(scores).edge_softmax(edges, scores, num_nodes)


def attention(edges, query, key, value, *, heads=1, scale=None):
    """``y_i = Σ_j softmax_j(scale · query_i · key_j) value_j`` over the edges to ``i``, head by
    head, without a tensor per edge. ``scale`` is 1/√(columns of a head) unless given."""
    return _half(query, key, value).attention(edges, query, key, value, _heads(heads), scale)


def segment_reduce(x, ptr, *, reduce="sum"):
    """The rows ``ptr[s] … ptr[s + 1]`` of ``x`` as one, for every segment ``s``."""
    return _half(x, ptr).segment_reduce(x, ptr, _code(reduce))


def scatter(x, index, *, dim_size=None, reduce="sum"):
    """The rows of ``x`` with the same index as one; ``dim_size`` is the number of results."""
    return _half(x, index).scatter(x, index, dim_size, _code(reduce))


def gather(x, index):
    """The rows of ``x`` that the index names."""
    return _half(x, index).gather(x, index)
