"""PyG's own ``NeighborLoader`` on a plain install: its sampler, where neither pyg-lib nor
torch-sparse could draw, draws with Lacis."""

from weakref import WeakKeyDictionary

from . import _lacis
from .loader import _number, sampled

# The engine's sampler of each of PyG's, in this process.
_samplers = WeakKeyDictionary()


def replacement(original):
    """A method to stand for ``NeighborSampler._sample``."""

    def _sample(self, seed, seed_time=None, **kwargs):
        if not _is_ours(self, seed, seed_time):
            return original(self, seed, seed_time, **kwargs)
        from torch_geometric.sampler import SamplerOutput

        found = _sampler_of(self).sample(seed.cpu().long().numpy(), _number())
        node, row, col, edge, nodes, edges = sampled(found, seed.numel())
        if getattr(self, "sample_direction", "forward") == "backward":
            row, col = col, row
        return SamplerOutput(node=node, row=row, col=col, edge=edge, batch=None,
                             num_sampled_nodes=nodes, num_sampled_edges=edges)

    _sample.__doc__ = original.__doc__
    _sample.__wrapped__ = original
    return _sample


def _is_ours(sampler, seed, seed_time):
    """Whether nobody else can draw, and what is asked for is what the engine does."""
    from torch_geometric import typing

    if typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE or isinstance(seed, dict):
        return False
    plain = seed_time is None and not sampler.replace and not sampler.disjoint
    timed = any(getattr(sampler, name, None) is not None
                for name in ("node_time", "edge_time", "edge_weight"))
    kind = getattr(sampler.subgraph_type, "value", sampler.subgraph_type)
    return plain and not timed and kind != "induced"


def _sampler_of(sampler):
    fanouts = [int(count) for count in sampler.num_neighbors.get_mapped_values()]
    kept = _samplers.get(sampler)
    if kept is None or kept[0] != fanouts:
        native = _lacis.Sampler(sampler.colptr.numpy(), sampler.row.numpy(), fanouts)
        kept = _samplers[sampler] = (fanouts, native)
    return kept[1]
