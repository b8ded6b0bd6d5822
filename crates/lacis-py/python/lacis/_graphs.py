"""Graphs: edges, features, labels and splits, held by the engine and seen by NumPy."""

from operator import index

import numpy as np

from . import _arrays, _lacis
from ._flags import flags_of

_PARTS = ("train", "val", "test")


class Graph:
    """A graph with, if they are known, features, labels and splits. It does not change.

    ``indptr``, ``indices``, ``values``, ``x`` and ``y`` are NumPy arrays over the engine's own
    memory: reading them copies nothing, and they cannot be written to. Row ``i`` of the adjacency
    holds the sources of the edges that point to node ``i``.

    >>> graph = lacis.Graph.from_edges([[0, 1, 2], [1, 2, 0]])
    >>> graph.num_nodes, graph.num_edges
    (3, 3)
    """

    __slots__ = ("_data", "__weakref__")

    def __init__(self, data):
        if not isinstance(data, _lacis.GraphData):
            raise TypeError("Graph.from_edges, from_csr, from_pyg or load_graph make a graph")
        self._data = data

    @classmethod
    def from_edges(cls, edge_index, num_nodes=None, *, edge_weight=None, name="graph", **known):
        """A graph from ``edge_index``: sources in its first row, targets in its second.

        Edges that are listed twice count twice. ``known`` may be ``x``, ``y``, ``train_mask``,
        ``val_mask`` and ``test_mask`` (masks, or numbers of nodes).
        """
        edge_index = _arrays.indices(edge_index, "edge_index")
        if edge_index.size == 0 and edge_index.ndim < 2:
            edge_index = edge_index.reshape(2, 0)
        if edge_index.ndim != 2 or edge_index.shape[0] != 2:
            raise ValueError(f"edge_index has shape {edge_index.shape}, expected (2, edges)")
        if edge_index.size and edge_index.min() < 0:
            raise ValueError(f"edge_index names node {edge_index.min()}; nodes count from 0")
        num_nodes = _count(edge_index, known.get("x")) if num_nodes is None else index(num_nodes)
        if num_nodes < 0:
            raise ValueError(f"num_nodes={num_nodes}; 0 or more would be right")
        source, target = edge_index
        weights = _weights(edge_weight, edge_index.shape[1])
        data = _lacis.GraphData.from_edges((name, num_nodes), source, target, weights)
        return cls(data)._with(known)

    @classmethod
    def from_csr(cls, indptr, indices=None, values=None, *, rows="target", name="graph", **known):
        """A graph from row pointers, columns and, if edges differ, values; or a SciPy matrix.

        With ``rows="target"``, as PyG's ``adj_t``, entry (i, j) is an edge from j to i; with
        ``rows="source"``, as SciPy's and NetworkX's adjacency, one from i to j.
        """
        if indices is None:
            if not hasattr(indptr, "tocsr"):
                raise TypeError("from_csr: indptr and indices are needed, or a SciPy matrix, not "
                                f"{type(indptr).__name__} alone")
            matrix = indptr.tocsr()
            if matrix.shape[0] != matrix.shape[1]:
                raise ValueError(f"the matrix has shape {matrix.shape}; a graph's is square")
            indptr, indices, values = matrix.indptr, matrix.indices, matrix.data
        if rows not in ("target", "source"):
            raise ValueError(f"rows={rows!r}; 'target' or 'source' would be right")
        indptr = _arrays.indices(indptr, "indptr").reshape(-1)
        indices = _arrays.indices(indices, "indices").reshape(-1)
        weights = _weights(values, indices.size)
        data = _lacis.GraphData.from_csr(name, indptr, indices, weights)
        return cls(data if rows == "target" else data.transposed())._with(known)

    @classmethod
    def from_pyg(cls, data, name="graph"):
        """A graph from a ``torch_geometric.data.Data``: edges, weights, x, y and masks."""
        known = {key: getattr(data, key, None) for key in ("x", "y")}
        masks = {f"{part}_mask": getattr(data, f"{part}_mask", None) for part in _PARTS}
        known.update({key: mask for key, mask in masks.items() if mask is not None})
        weight = getattr(data, "edge_weight", None)
        attributes = getattr(data, "edge_attr", None)
        if weight is None and attributes is not None:
            if attributes.dim() > 1 and attributes.size(1) != 1:
                raise ValueError(
                    f"edge_attr has {attributes.size(1)} columns; a graph here has one weight per "
                    "edge: set edge_weight, or drop edge_attr")
            weight = attributes
        if getattr(data, "edge_index", None) is not None:
            return cls.from_edges(data.edge_index, data.num_nodes, edge_weight=weight, name=name,
                                  **known)
        adjacency = getattr(data, "adj_t", None)
        if adjacency is None:
            raise ValueError("the data has neither edge_index nor adj_t")
        indptr, indices, values = _rows_of(adjacency)
        return cls.from_csr(indptr, indices, values, name=name, **known)

    def to_pyg(self):
        """A ``torch_geometric.data.Data`` with copies of everything, edges sorted by target."""
        import torch
        from torch_geometric.data import Data

        data = Data(edge_index=torch.from_numpy(self.edge_index), num_nodes=self.num_nodes)
        if self.values is not None:
            data.edge_weight = torch.from_numpy(self.values.copy())
        if self.x is not None:
            data.x = torch.from_numpy(np.array(self.x))
        if self.y is not None:
            wide = np.int64 if self._data.task == "classes" else np.float32
            data.y = torch.from_numpy(np.array(self.y, dtype=wide))
        for part, mask in self._masks().items():
            setattr(data, f"{part}_mask", torch.from_numpy(mask))
        return data

    def save(self, path):
        """Writes the graph: a folder that opens in milliseconds, or what the ending means."""
        self._data.save(path)

    def _with(self, known):
        unknown = set(known) - {"x", "y", *(f"{part}_mask" for part in _PARTS)}
        if unknown:
            raise TypeError(f"a graph has no {', '.join(sorted(unknown))}")
        data = self._data
        if known.get("x") is not None:
            x = _arrays.floats(known["x"], "x")
            if x.ndim != 2:
                raise ValueError(f"x has shape {x.shape}, expected (nodes, features)")
            data = data.with_features(x)
        if known.get("y") is not None:
            data = _with_labels(data, _arrays.to_numpy(known["y"]))
        masks = [known.get(f"{part}_mask") for part in _PARTS]
        if any(mask is not None for mask in masks):
            names = [f"{part}_mask" for part in _PARTS]
            parts = (_arrays.nodes(mask, name, data.sizes[0]) for mask, name in zip(masks, names))
            data = data.with_split("canonical", *parts)
        return Graph(data)

    @property
    def name(self):
        """What it is called."""
        return self._data.name

    @property
    def num_nodes(self):
        """Number of nodes."""
        return self._data.sizes[0]

    @property
    def num_edges(self):
        """Number of stored directed edges."""
        return self._data.sizes[1]

    @property
    def num_features(self):
        """Columns of ``x``."""
        return self._data.sizes[2]

    @property
    def num_classes(self):
        """Classes, labels or targets to predict."""
        return self._data.sizes[3]

    @property
    def indptr(self):
        """Where each row begins, and where the last one ends."""
        return np.asarray(self._data.indptr)

    @property
    def indices(self):
        """The sources, row by row."""
        return np.asarray(self._data.indices)

    @property
    def values(self):
        """The edges' weights, or None where all are one."""
        return _array(self._data.values)

    @property
    def x(self):
        """A row of numbers per node, or None."""
        return _array(self._data.x)

    @property
    def y(self):
        """Classes (−1 where unknown), labels or targets, or None."""
        return _array(self._data.y)

    @property
    def edge_index(self):
        """Sources and targets as a new ``2 × edges`` array, sorted by target."""
        degrees = np.diff(self.indptr.astype(np.int64))
        targets = np.repeat(np.arange(self.num_nodes, dtype=np.int64), degrees)
        return np.stack([self.indices.astype(np.int64), targets])

    @property
    def splits(self):
        """By name, the nodes that train, that choose the best epoch and that judge."""
        return {name: {part: np.asarray(nodes) for part, nodes in zip(_PARTS, parts)}
                for name, *parts in self._data.splits}

    def is_undirected(self):
        """Whether every edge has its reverse, of the same weight."""
        return self._data.is_undirected()

    def _masks(self):
        splits = self.splits
        if not splits:
            return {}
        masks = {}
        for part, nodes in next(iter(splits.values())).items():
            masks[part] = np.zeros(self.num_nodes, dtype=bool)
            masks[part][nodes] = True
        return masks

    def __repr__(self):
        nodes, edges, features, classes = self._data.sizes
        known = "".join([f", {features:,} features" * bool(features),
                         f", {classes:,} {self._data.task}" * bool(classes)])
        return f"Graph({self.name!r}, {nodes:,} nodes, {edges:,} edges{known})"

    def __reduce__(self):
        splits = next(iter(self._data.splits), None)
        known = {"x": self.x, "y": self.y}
        if splits is not None:
            known.update({f"{part}_mask": np.asarray(nodes, dtype=np.int64)
                          for part, nodes in zip(_PARTS, splits[1:])})
        parts = tuple(None if part is None else np.array(part)
                      for part in (self.indptr, self.indices, self.values))
        return _restored, (parts, self.name, known)


def _restored(parts, name, known):
    return Graph.from_csr(*parts, name=name, **known)


def _array(view):
    return None if view is None else np.asarray(view)


def _count(edge_index, x):
    if x is not None:
        return len(x)
    return int(edge_index.max()) + 1 if edge_index.size else 0


def _weights(values, count):
    if values is None:
        return None
    values = _arrays.floats(values, "edge_weight").reshape(-1)
    if values.size != count:
        raise ValueError(f"there are {values.size} weights for {count} edges")
    return None if np.all(values == 1) else values


def _with_labels(data, y):
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 1 and y.dtype.kind in "iub":
        return data.with_classes(np.ascontiguousarray(y, dtype=np.int64))
    if y.ndim not in (1, 2):
        raise ValueError(f"y has shape {y.shape}, expected one row per node")
    numbers = _arrays.floats(y.reshape(len(y), -1), "y")
    if y.ndim == 2 and np.isin(numbers, (0, 1)).all():
        return data.with_labels(numbers)
    return data.with_targets(numbers)


def _rows_of(adjacency):
    """Row pointers, columns and values of torch's CSR tensor or torch_sparse's SparseTensor."""
    if hasattr(adjacency, "crow_indices"):
        adjacency = adjacency if adjacency.layout.__str__() == "torch.sparse_csr" \
            else adjacency.to_sparse_csr()
        return adjacency.crow_indices(), adjacency.col_indices(), adjacency.values()
    return adjacency.csr()


def load_graph(path, **changes):
    """The graph that a path, a generator (``rmat:n=1000,e=5000``) or a built-in name stands for.

    ``changes`` are flags of the command by the same names: ``undirected=True``,
    ``self_loops=True``, ``features=64``, ``classes=5``, ``format="mtx"``, ….
    """
    return Graph(_lacis.GraphData.open(str(path), flags_of("load_graph", changes)))
