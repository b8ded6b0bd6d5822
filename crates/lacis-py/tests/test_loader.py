"""Neighbour sampling: PyG's batches, without pyg-lib or torch-sparse."""

import lacis
import numpy as np
import pytest

torch = pytest.importorskip("torch")
geometric = pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData  # noqa: E402


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    n, e = 200, 1500
    return Data(x=torch.randn(n, 5, generator=generator),
                edge_index=torch.randint(0, n, (2, e), generator=generator),
                edge_attr=torch.arange(e).float(), y=torch.arange(n) % 4)


def check(batch, data, fanouts):
    """Whether a batch is a sampled neighbourhood of its first nodes."""
    assert torch.equal(batch.x, data.x[batch.n_id]) and torch.equal(batch.y, data.y[batch.n_id])
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert sum(batch.num_sampled_nodes) == batch.num_nodes
    assert sum(batch.num_sampled_edges) == batch.num_edges
    assert batch.num_sampled_nodes[0] == batch.batch_size
    degrees = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    drawn = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)
    known = torch.tensor(batch.num_sampled_nodes).cumsum(0)
    hop = torch.bucketize(torch.arange(batch.num_nodes), known, right=True)
    for depth, fanout in enumerate(fanouts):
        nodes = (hop == depth).nonzero().view(-1)
        expected = degrees[batch.n_id[nodes]]
        expected = expected if fanout < 0 else expected.clamp(max=fanout)
        assert torch.equal(drawn[nodes], expected)


@pytest.mark.parametrize("fanouts", [[5], [4, 3], [-1, 2], [-1, -1]])
@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_batches_are_neighbourhoods(data, fanouts, num_workers):
    loader = lacis.loader.NeighborLoader(data, fanouts, batch_size=32, shuffle=True,
                                         num_workers=num_workers)
    batches = list(loader)
    assert len(batches) == len(loader) == 7
    for batch in batches:
        check(batch, data, fanouts)
        assert torch.equal(batch.n_id[:batch.batch_size], batch.input_id)
    seeds = torch.cat([batch.input_id for batch in batches])
    assert torch.equal(seeds.sort().values, torch.arange(200))


def test_a_seed_repeats_an_epoch_whatever_the_number_of_threads(data):
    def epoch(num_workers):
        torch.manual_seed(7)
        loader = lacis.loader.NeighborLoader(data, [3, 3], batch_size=16, shuffle=True,
                                             num_workers=num_workers)
        return [torch.cat([batch.n_id, batch.e_id]) for batch in loader]

    first = epoch(0)
    assert all(torch.equal(a, b) for a, b in zip(first, epoch(3)))
    torch.manual_seed(8)
    other = list(lacis.loader.NeighborLoader(data, [3, 3], batch_size=16, shuffle=True))
    assert not all(torch.equal(a, torch.cat([b.n_id, b.e_id])) for a, b in zip(first, other))


def test_seeds_by_mask_by_number_and_twice(data):
    mask = torch.zeros(200, dtype=torch.bool)
    mask[[3, 50, 7]] = True
    (batch,) = lacis.loader.NeighborLoader(data, [2], mask, batch_size=10)
    assert batch.n_id[:3].tolist() == [3, 7, 50]
    seeds = torch.tensor([5, 9, 5, 5])
    (batch,) = lacis.loader.NeighborLoader(data, [-1, 2], seeds, batch_size=4)
    assert batch.n_id[:4].tolist() == [5, 9, 5, 5]
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    into = [batch.e_id[batch.edge_index[1] == at].sort().values for at in range(4)]
    assert torch.equal(into[0], into[2]) and torch.equal(into[0], into[3])
    assert sum(batch.num_sampled_edges) == batch.num_edges
    loader = lacis.loader.NeighborLoader(data, [2], seeds, batch_size=3, drop_last=True)
    assert len(list(loader)) == len(loader) == 1


@pytest.mark.parametrize("name, value", [
    ("replace", True), ("disjoint", True), ("time_attr", "t"), ("weight_attr", "w"),
    ("subgraph_type", "induced"), ("filter_per_worker", True), ("pin_memory", True),
])
def test_what_is_not_supported_raises_by_name(data, name, value):
    with pytest.raises(ValueError, match=name):
        lacis.loader.NeighborLoader(data, [2], **{name: value})


def test_misuse_is_named(data):
    with pytest.raises(TypeError, match="batchsize"):
        lacis.loader.NeighborLoader(data, [2], batchsize=4)
    with pytest.raises(TypeError, match="HeteroData"):
        lacis.loader.NeighborLoader(HeteroData(), [2])
    with pytest.raises(ValueError, match="fan-out"):
        lacis.loader.NeighborLoader(data, [0])
    with pytest.raises(ValueError):
        lacis.loader.NeighborLoader(data, [2], batch_size=0)


@pytest.mark.parametrize("nothing", [torch.empty(0, dtype=torch.long), torch.zeros(200, dtype=bool)])
def test_no_seeds_make_no_batches(data, nothing):
    loader = lacis.loader.NeighborLoader(data, [2], nothing, batch_size=np.int64(4))
    assert len(loader) == 0 and list(loader) == []
