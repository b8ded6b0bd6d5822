"""Mini-batches of sampled neighbourhoods, prepared ahead by threads of this process."""

import numbers

import numpy as np

from . import _lacis

__all__ = ["NeighborLoader"]

# PyG's and torch's arguments that cannot be served here, and what they are by default.
_UNSUPPORTED = {
    "input_time": None, "replace": False, "disjoint": False, "temporal_strategy": "uniform",
    "time_attr": None, "weight_attr": None, "transform_sampler_output": None,
    "filter_per_worker": None, "neighbor_sampler": None, "directed": True, "custom_cls": None,
    "sampler": None, "batch_sampler": None, "worker_init_fn": None, "multiprocessing_context": None,
    "pin_memory": False, "pin_memory_device": "", "timeout": 0,
}
# Those that only concern worker processes, of which there are none.
_WITHOUT_EFFECT = ("persistent_workers", "in_order")


class NeighborLoader:
    """Batches of nodes with sampled neighbourhoods, as ``torch_geometric.loader.NeighborLoader``.

    The arguments are PyG's; those that are not supported raise, by name. A batch is a PyG ``Data``
    with ``n_id``, ``e_id``, ``input_id``, ``batch_size``, ``num_sampled_nodes`` and
    ``num_sampled_edges``; its first ``batch_size`` nodes are the seeds. It needs neither pyg-lib
    nor torch-sparse.

    ``num_workers`` are threads of this process (default 1): nothing is pickled or forked, and how
    many there are does not change what is in a batch. Random numbers come from ``generator``, or
    from torch's own: ``torch.manual_seed`` repeats an epoch.
    """

    def __init__(self, data, num_neighbors, input_nodes=None, *, batch_size=1, shuffle=False,
                 drop_last=False, num_workers=1, prefetch_factor=2, transform=None,
                 generator=None, is_sorted=False, subgraph_type="directional", input_id=None,
                 **others):
        _refuse(others, subgraph_type)
        from torch_geometric.data import Data
        from torch_geometric.sampler.utils import to_csc

        if not isinstance(data, Data):
            raise TypeError(f"data must be a torch_geometric.data.Data, not {type(data).__name__}; "
                            "graphs with several kinds of nodes are not supported")
        if not isinstance(batch_size, numbers.Integral) or batch_size < 1:
            raise ValueError(f"batch_size={batch_size!r}; 1 or more would be right")
        self.data, self.batch_size, self.transform = data, int(batch_size), transform
        self.num_neighbors = [int(count) for count in num_neighbors]
        self._shuffle, self._drop_last, self._generator = shuffle, drop_last, generator
        self._threads = (max(int(num_workers), 0), max(int(prefetch_factor or 2), 1))
        colptr, row, self._perm = to_csc(data, device="cpu", is_sorted=is_sorted)
        self._sampler = _lacis.Sampler(colptr.numpy(), row.numpy(), self.num_neighbors)
        self._seeds, self._ids = _seeds(input_nodes, data.num_nodes), input_id

    def __len__(self):
        count = self._seeds.numel()
        return count // self.batch_size if self._drop_last else -(-count // self.batch_size)

    def __iter__(self):
        import torch

        order = (torch.randperm(self._seeds.numel(), generator=self._generator)
                 if self._shuffle else torch.arange(self._seeds.numel()))
        order = order[:len(self) * self.batch_size]
        number = _number(self._generator)
        epoch = self._sampler.epoch(self._seeds[order].numpy(), self.batch_size, number,
                                    self._threads)
        # Of nothing, torch's `split` gives one part.
        for part in order.split(self.batch_size) if order.numel() else ():
            yield self._batch(part, epoch.next())

    def __call__(self, index):
        """The batch of the seeds at some places, as PyG's loader called."""
        import torch

        index = torch.as_tensor(index)
        number = _number(self._generator)
        return self._batch(index, self._sampler.sample(self._seeds[index].numpy(), number))

    def _batch(self, places, found):
        from torch_geometric.loader.utils import filter_data

        node, row, col, edge, nodes, edges = sampled(found, len(places))
        batch = filter_data(self.data, node, row, col, edge, self._perm)
        if "n_id" not in batch:
            batch.n_id = node
        if "e_id" not in batch:
            batch.e_id = edge if self._perm is None else self._perm[edge]
        batch.num_sampled_nodes, batch.num_sampled_edges = nodes, edges
        batch.input_id = places if self._ids is None else self._ids[places]
        batch.batch_size = len(places)
        return batch if self.transform is None else self.transform(batch)

    def __repr__(self):
        return f"NeighborLoader({self._seeds.numel():,} seeds, {self.num_neighbors})"


def _seeds(nodes, count):
    """All nodes, those of a mask, or those that are listed."""
    import torch

    if nodes is None:
        return torch.arange(count)
    nodes = torch.as_tensor(nodes).cpu()
    if nodes.dtype is torch.bool:
        if nodes.shape != (count,):
            raise ValueError(f"input_nodes has shape {tuple(nodes.shape)}, expected ({count},)")
        return nodes.nonzero().view(-1)
    return nodes.reshape(-1).long()


def sampled(found, count):
    """What was drawn, as torch tensors, with a row for each of ``count`` seeds as given.

    The engine has every node once; where a node is a seed twice, PyG's batches have it twice.
    """
    import torch

    node, row, col, edge, nodes, edges, seed_rows = found
    if nodes[0] != count:
        node, row, col, edge, nodes, edges = _with_repeats(
            (node, row, col, edge, list(nodes), list(edges)), seed_rows)
    return (*map(torch.from_numpy, (node, row, col, edge)), list(nodes), list(edges))


def _with_repeats(found, seed_rows):
    """Seeds as they were given; those that come again have the in-edges of the first."""
    node, row, col, edge, nodes, edges = found
    once, count = nodes[0], len(seed_rows)
    first = np.full(once, count)
    np.minimum.at(first, seed_rows, np.arange(count))
    place = np.concatenate([first, np.arange(once, len(node)) + count - once])
    again = np.flatnonzero(first[seed_rows] != np.arange(count))
    seed_edges = edges[0]
    begins = np.searchsorted(col[:seed_edges], np.arange(once + 1))
    copies = [np.arange(begins[seed_rows[at]], begins[seed_rows[at] + 1]) for at in again]
    entries = np.concatenate([np.arange(seed_edges), *copies, np.arange(seed_edges, len(col))])
    cols = np.concatenate([place[col[:seed_edges]],
                           *(np.full(len(part), at) for at, part in zip(again, copies)),
                           place[col[seed_edges:]]])
    nodes[0], edges[0] = count, seed_edges + sum(map(len, copies))
    node = np.concatenate([node[seed_rows], node[once:]])
    return node, place[row[entries]], cols, edge[entries], nodes, edges


def _refuse(others, subgraph_type):
    for name, value in others.items():
        if name in _WITHOUT_EFFECT:
            continue
        if name not in _UNSUPPORTED:
            raise TypeError(f"NeighborLoader has no argument {name!r}")
        if value is not None and value != _UNSUPPORTED[name]:
            raise ValueError(f"{name}={value!r} is not supported by lacis.loader.NeighborLoader; "
                             "torch_geometric.loader.NeighborLoader may serve it")
    name = getattr(subgraph_type, "value", subgraph_type)
    if name != "directional":
        raise ValueError(f"subgraph_type={name!r} is not supported; 'directional' is")


def _number(generator=None):
    """A number from torch's random numbers."""
    import torch

    return int(torch.randint(2**63 - 1, (), generator=generator))
