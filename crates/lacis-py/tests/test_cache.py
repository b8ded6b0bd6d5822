"""What is kept with tensors: right after every change, gone with them, bounded."""

import gc
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import lacis
from graphs import csr, edges, features
from torch_geometric.nn import conv

warnings.filterwarnings("ignore")
N, K = 50, 12


def caches():
    return lacis.report().caches


def test_the_second_call_finds_the_graph():
    lacis.patch()
    layer, index = conv.GCNConv(K, 5), edges()
    layer(features(), index)
    misses = caches()["misses"]
    layer(features(), index)
    layer(features(), index.view(2, -1))
    assert caches()["misses"] == misses and caches()["hits"] > 0


def test_writing_to_the_edges_is_noticed():
    layer, index = conv.SAGEConv(K, 5), edges()
    lacis.patch()
    layer(features(), index)
    index[0, 3] = 40
    found = layer(features(), index)
    lacis.unpatch()
    assert torch.allclose(found, layer(features(), index), atol=1e-5)


def test_memory_that_is_used_again_is_not_mistaken():
    layer = conv.SAGEConv(K, 5)
    for seed in range(30):
        index = edges(seed=seed)
        lacis.patch()
        found = layer(features(), index)
        lacis.unpatch()
        assert torch.allclose(found, layer(features(), index), atol=1e-5)
        del index


def test_changed_weights_are_noticed():
    layer, index, weight = conv.GraphConv(K, 5), edges(), torch.rand(300)
    a = csr(edges(), N, torch.rand(300))
    lacis.patch()
    for _ in range(2):
        gcn = conv.GCNConv(K, 5)
        found = [layer(features(), index, weight), gcn(features(), index, weight), a @ features()]
        lacis.unpatch()
        right = [layer(features(), index, weight), gcn(features(), index, weight), a @ features()]
        lacis.patch()
        assert all(torch.allclose(f, r, atol=1e-4) for f, r in zip(found, right))
        weight.mul_(2)
        weight[3] = 7
        a.values().mul_(3)


def test_entries_go_with_their_tensors_and_are_bounded():
    from lacis import _cache

    lacis.clear_caches()
    lacis.patch()
    layer = conv.SAGEConv(K, 5)
    layer(features(), edges())
    gc.collect()
    assert caches()["tensors"] == 0
    many = [edges(seed=seed) for seed in range(_cache.LIMIT + 10)]
    for index in many:
        layer(features(), index)
    assert caches()["tensors"] <= _cache.LIMIT
    lacis.clear_caches()
    assert caches()["objects"] == 0


def test_writes_that_torch_does_not_see_are_found_when_asked(monkeypatch):
    monkeypatch.setenv("LACIS_CHECK", "1")
    layer = conv.SAGEConv(K, 5)
    array = edges().numpy()
    index = torch.from_numpy(array)
    lacis.patch()
    layer(features(), index)
    array[0] = np.roll(array[0], 1)
    found = layer(features(), index)
    lacis.unpatch()
    assert torch.allclose(found, layer(features(), index), atol=1e-5)


def test_inference_tensors_are_converted_and_not_kept():
    lacis.clear_caches()
    lacis.patch()
    layer = conv.SAGEConv(K, 5)
    with torch.inference_mode():
        index = edges() + 0
        first = layer(features(), index)
        index[0, 3] = 40
        assert not torch.equal(layer(features(), index), first)
    assert caches()["objects"] == 0
