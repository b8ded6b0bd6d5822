"""PyG's own loaders on a plain install, after `patch()`."""

import warnings

import lacis
import pytest

torch = pytest.importorskip("torch")
geometric = pytest.importorskip("torch_geometric")
from test_loader import check, data  # noqa: E402, F401


@pytest.fixture
def plain_install(monkeypatch):
    monkeypatch.setattr(geometric.typing, "WITH_PYG_LIB", False)
    monkeypatch.setattr(geometric.typing, "WITH_TORCH_SPARSE", False)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_pygs_own_loader_works_on_a_plain_install(data, plain_install, num_workers):
    from torch_geometric.loader import NeighborLoader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = NeighborLoader(data, [4, 3], batch_size=64, shuffle=True, num_workers=num_workers)
    with pytest.raises(ImportError):
        next(iter(loader))
    with lacis.patched():
        batches = list(loader)
    assert sum(batch.batch_size for batch in batches) == 200
    for batch in batches:
        check(batch, data, [4, 3])
    with pytest.raises(ImportError):
        next(iter(loader))


def test_pygs_link_loader_works_on_a_plain_install(data, plain_install):
    from torch_geometric.loader import LinkNeighborLoader

    with warnings.catch_warnings(), lacis.patched():
        warnings.simplefilter("ignore")
        loader = LinkNeighborLoader(data, [3, 3], batch_size=50, neg_sampling_ratio=1.0,
                                    edge_label_index=data.edge_index[:, :100])
        batches = list(loader)
    assert len(batches) == 2
    for batch in batches:
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert batch.edge_label_index.size(1) == 100
