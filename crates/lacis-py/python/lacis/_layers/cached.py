"""What a layer with ``cached=True`` keeps of its first graph, where the kernels know it already."""

import torch

from .._torch import raw_list


class Promised(tuple):
    """The pair ``(edge_index, edge_weight)`` of a normalised adjacency, made when somebody looks.

    torch_geometric keeps it in every layer: seven times the bytes of the matrix that the kernels
    use. Whoever reads it in Python (the original after :func:`lacis.unpatch`, a copy, a pickle)
    finds the same edges and weights, sorted by target; what reads tuples in C, as TorchScript
    does, needs ``tuple(promised)``.
    """

    def __new__(cls, matrix, flow, dtype):
        self = super().__new__(cls)
        self.matrix, self.flow, self.dtype, self._made = matrix, flow, dtype, None
        return self

    def pair(self):
        """As a tuple like any other."""
        if self._made is None:
            adjacency, left, right = self.matrix.adjacency, self.matrix.left, self.matrix.right
            edges = torch.empty((2, self.matrix.nnz), dtype=torch.int64)
            rows, cols = (edges[1], edges[0]) if self.flow == "source_to_target" else edges
            adjacency.entries((raw_list(rows), raw_list(cols)))
            self._made = (edges, (left[rows] * right[cols]).to(self.dtype))
        return self._made

    def __getitem__(self, which):
        return self.pair()[which]

    def __iter__(self):
        return iter(self.pair())

    def __len__(self):
        return 2

    def __add__(self, other):
        return self.pair() + other

    def __contains__(self, item):
        return item in self.pair()

    def __eq__(self, other):
        return self is other or self.pair() == other

    def __hash__(self):
        return id(self)

    def __repr__(self):
        return repr(self.pair())

    def __reduce__(self):
        return tuple, (self.pair(),)
