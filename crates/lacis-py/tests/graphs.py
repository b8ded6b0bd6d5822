"""Small graphs with everything that can go wrong: loops, repeats, isolated nodes, hubs."""

import torch


def edges(n=50, e=300, seed=0, dtype=torch.int64):
    made = torch.Generator().manual_seed(seed)
    index = torch.randint(0, n - 3, (2, e), generator=made)
    index[:, :5] = torch.arange(5)  # self-loops
    index[:, 5:10] = index[:, 10:15]  # repeated edges
    index[1, 20:60] = 7  # a hub
    return index.to(dtype)  # the last three nodes are isolated


def features(n=50, k=12, dtype=torch.float32, seed=1):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(n, k, generator=made, dtype=torch.float64).to(dtype)


def csr(index, n, values=None, dtype=torch.float32):
    """The adjacency with targets as rows, repeats summed, as a CSR tensor."""
    values = torch.ones(index.size(1), dtype=dtype) if values is None else values
    coo = torch.sparse_coo_tensor(index.flip(0), values, (n, n)).coalesce()
    return coo.to_sparse_csr()
