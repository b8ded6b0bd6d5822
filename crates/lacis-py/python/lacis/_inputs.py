"""From what programs pass to layers (`edge_index`, `EdgeIndex`, `SparseTensor`, sparse tensors) to
matrices that the kernels take, kept with the tensors that were passed."""

import torch
from torch import Tensor

from . import _memory
from ._cache import derived, peek
from ._lacis import Adjacency, Segments
from ._torch import NUMBERS, Matrix, raw_list, threads

KEEP_LOOPS, NO_LOOPS, ONE_LOOP = 0, 1, 2
_INDEX_BYTES = {torch.int64: 8, torch.int32: 4}
# Lists of so many are built once and used often.
_MANY_EDGES = 1 << 20


class Decline(Exception):
    """Why a call is left to the original."""


def require(condition, why):
    if not condition:
        raise Decline(why)


def is_plain(x):
    """Whether a tensor is one that kernels can read: no subclass, no other device."""
    return type(x) in (Tensor, torch.nn.Parameter) and x.is_cpu


def check_features(x):
    require(isinstance(x, Tensor), "the features are no tensor")
    require(type(x) in (Tensor, torch.nn.Parameter), "the features are a tensor subclass")
    require(x.is_cpu, "the features are not on the CPU")
    require(x.layout is torch.strided, "the features are sparse")
    require(x.dim() == 2, "the features have not two dimensions")
    require(x.shape[1] > 0, "there are no features")
    require(x.dtype in NUMBERS, f"{x.dtype} features")


def plain_edges(edge_index):
    """A dense `edge_index` as a plain tensor, or None for what is none."""
    if isinstance(edge_index, Tensor) and edge_index.layout is torch.strided:
        if type(edge_index) is Tensor:
            return edge_index
        from torch_geometric import EdgeIndex

        if isinstance(edge_index, EdgeIndex):
            edges = edge_index.as_tensor()
            # Writes to it move its own version, and not that of what it holds.
            is_old = edge_index.is_inference() or edge_index._version > 0
            return edges.clone() if is_old else edges
        raise Decline("the edge_index is a tensor subclass")
    return None


def check_edges(edges):
    require(edges.is_cpu, "the edge_index is not on the CPU")
    require(edges.dtype in _INDEX_BYTES, f"an edge_index of {edges.dtype}")
    require(edges.dim() == 2 and edges.shape[0] == 2, "the edge_index is not of shape [2, E]")


def declared_size(edge_index):
    """(sources, targets) that an `EdgeIndex` names; None for what it does not know."""
    sizes = getattr(edge_index, "sparse_size", None)
    if sizes is None or type(edge_index) is Tensor:
        return (None, None)
    return tuple(edge_index.sparse_size())


def edge_adjacency(edges, n_targets, n_sources, flow="source_to_target", loops=KEEP_LOOPS,
                   ordered=False):
    """The adjacency of a plain [2, E] tensor; `ordered` where edges have anything of their own."""
    key = ("adjacency", n_targets, n_sources, flow, loops, ordered)
    if not ordered:
        found = peek(edges, key[:-1] + (True,))
        if found is not None:
            return found

    def make():
        lists = edges if edges.stride(1) == 1 or edges.size(1) < 2 else edges.contiguous()
        step = lists.stride(0) * lists.element_size()
        first, second = lists.data_ptr(), lists.data_ptr() + step
        rows, cols = (second, first) if flow == "source_to_target" else (first, second)
        given = (rows, cols, lists.size(1), lists.element_size())
        try:
            made = Adjacency.from_edges(given, (n_targets, n_sources), (loops, ordered), threads())
        except (ValueError, IndexError, OverflowError) as error:
            raise Decline(f"the edge_index: {error}") from None
        if lists.size(1) >= _MANY_EDGES:
            _settle(made)
        return made

    return derived(edges, key, make)


def _settle(adjacency):
    """What the backward pass asks for is found now, and what building took goes back, before
    results need memory of their own."""
    if torch.is_grad_enabled():
        adjacency.is_symmetric(threads())
    _memory.trim()


def is_sparse_tensor(adj):
    """Whether it is torch_sparse's `SparseTensor`."""
    return type(adj).__name__ == "SparseTensor" and type(adj).__module__.startswith("torch_sparse")


class Sparse:
    """A sparse matrix as given: the adjacency of its pattern or of the transposed one, and its
    values in the adjacency's order (None: all ones)."""

    def __init__(self, adjacency, flipped, values, place):
        self.adjacency, self.flipped, self.values = adjacency, flipped, values
        # Whether a row has no column twice, as far as the format promises it.
        self.merged = True
        # What results are kept with, and what else they follow from.
        self._key, *self._others = place

    @property
    def size(self):
        rows, cols, _ = self.adjacency.shape
        return (cols, rows) if self.flipped else (rows, cols)

    def _derived(self, key, make):
        others = self._others if self.values is None else [*self._others, self.values]
        return derived(self._key, (key, self.flipped), make, others=others)

    def constants(self):
        """The values, or None where all of them are 1."""
        if self.values is None:
            return None
        ones = self._derived("ones", lambda: (bool((self.values == 1).all()),))
        return None if ones[0] else self.values.detach()

    def matrix(self):
        """The matrix itself."""
        def make():
            matrix = Matrix(self.adjacency, values=self.constants())
            return matrix.t() if self.flipped else matrix

        return self._derived("matrix", make)

    def pattern(self):
        """The same entries, all of them 1."""
        return Sparse(self.adjacency, self.flipped, None, (self._key, *self._others))

    def mean(self):
        """The matrix divided by the number of entries of each row."""
        require(not self.flipped, "a mean of a matrix by columns")

        def make():
            return Matrix(self.adjacency, left=_one_over_degrees(self.adjacency),
                          values=self.constants())

        return self._derived("mean", make)


def sparse_input(adj):
    """A `SparseTensor` or a sparse torch tensor as a :class:`Sparse`, or None for neither."""
    if is_sparse_tensor(adj):
        rowptr, col, value = adj.csr()
        require(value is None or (value.dim() == 1 and is_plain(value)),
                "the SparseTensor's values are not one number per entry on the CPU")
        require(is_plain(col), "the SparseTensor is not on the CPU")
        return Sparse(_rows_together(rowptr, col, adj.size(1)), False, value, (col, rowptr))
    if not isinstance(adj, Tensor) or adj.layout is torch.strided:
        return None
    require(type(adj) is Tensor and adj.device.type == "cpu" and adj.dim() == 2,
            "the sparse tensor is not a plain matrix on the CPU")
    n_rows, n_cols = adj.shape
    if adj.layout is torch.sparse_coo:
        return _coo_input(adj)
    if adj.layout is torch.sparse_csr:
        flipped, n, pointers, indices = False, n_cols, adj.crow_indices(), adj.col_indices()
    else:
        require(adj.layout is torch.sparse_csc, f"a sparse tensor of layout {adj.layout}")
        flipped, n, pointers, indices = True, n_rows, adj.ccol_indices(), adj.row_indices()
    values = adj.values()
    require(values.dim() == 1, "values that are not numbers")
    return Sparse(_rows_together(pointers, indices, n), flipped, values, (indices, pointers))


def _coo_input(adj):
    require(adj.sparse_dim() == 2 and adj.dense_dim() == 0, "values that are not numbers")
    edges = adj._indices()
    check_edges(edges)
    # Entry (i, j) of the matrix is an edge from j to i.
    adjacency = edge_adjacency(edges, *adj.shape, "target_to_source", ordered=True)
    sparse = Sparse(adjacency, False, adj._values(), (edges,))
    sparse.merged = adj.is_coalesced()
    return sparse


def _rows_together(pointers, indices, n_cols):
    require(pointers.dtype in _INDEX_BYTES and pointers.dtype is indices.dtype
            and is_plain(pointers), "indices that are neither int32 nor int64")

    def make():
        own, other = pointers.contiguous(), indices.contiguous()
        try:
            return Adjacency.from_csr(raw_list(own), raw_list(other),
                                      (n_cols, other.element_size()), threads())
        except (ValueError, IndexError, OverflowError) as error:
            raise Decline(f"the sparse matrix: {error}") from None

    return derived(indices, ("rows", n_cols), make, others=(pointers,))


def segments_of(index, n):
    """The segments that an index names."""

    def make():
        own = index.contiguous()
        try:
            return Segments(raw_list(own), (own.element_size(), n), threads())
        except (ValueError, IndexError, OverflowError) as error:
            raise Decline(f"the index: {error}") from None

    return derived(index, ("segments", n), make)


def mean_matrix(edges, n_targets, n_sources, flow="source_to_target"):
    """`D⁻¹·A`: the mean of the neighbours, 0 for nodes without any."""

    def make():
        adjacency = edge_adjacency(edges, n_targets, n_sources, flow)
        return Matrix(adjacency, left=_one_over_degrees(adjacency))

    return derived(edges, ("mean", n_targets, n_sources, flow), make)


def _one_over_degrees(adjacency):
    degrees = torch.empty(adjacency.shape[0], dtype=torch.float64)
    adjacency.degrees(1, raw_list(degrees))
    return 1.0 / degrees.clamp(min=1.0)


def normalised(edges, n, flow, add_loops):
    """`D^-½·(A + I)·D^-½`, or without `I`, of edges that all weigh 1."""

    def make():
        loops = ONE_LOOP if add_loops else KEEP_LOOPS
        adjacency = edge_adjacency(edges, n, n, flow, loops)
        degrees = torch.empty(n, dtype=torch.float64)
        adjacency.degrees(1, raw_list(degrees))
        factors = degrees.pow(-0.5).masked_fill(degrees == 0, 0.0)
        return Matrix(adjacency, left=factors, right=factors)

    return derived(edges, ("normalised", n, flow, add_loops), make)


def plain_matrix(edges, n_targets, n_sources, flow="source_to_target"):
    """The adjacency as it is."""
    return derived(edges, ("matrix", n_targets, n_sources, flow),
                   lambda: Matrix(edge_adjacency(edges, n_targets, n_sources, flow)))


def valued_matrix(edges, weight, n, flow="source_to_target"):
    """The adjacency with constant weights."""
    adjacency = edge_adjacency(edges, n, n, flow, ordered=True)
    return derived(edges, ("valued", n, flow), lambda: Matrix(adjacency, values=weight),
                   others=(weight,))
