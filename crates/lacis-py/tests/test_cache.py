"""What is kept with tensors: right after every change, gone with them, bounded."""

import copy
import gc
import pickle
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import lacis
from graphs import csr, edges, features
from torch_geometric.nn import conv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

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


def test_writes_to_weights_that_torch_does_not_see_are_found_when_asked(monkeypatch):
    monkeypatch.setenv("LACIS_CHECK", "1")
    lacis.patch()
    layer, index, x, weight = conv.GCNConv(12, 5), edges(), features(), torch.rand(300)
    before = layer(x, index, weight)
    weight.numpy()[:] *= torch.rand(300).numpy()
    found = layer(x, index, weight)
    lacis.unpatch()
    assert torch.allclose(found, layer(x, index, weight), atol=1e-5)
    assert not torch.allclose(found, before, atol=1e-5)


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


def test_results_of_an_epoch_are_kept_for_the_next():
    from lacis import _lacis
    from lacis._torch import empty

    mib = 1 << 20
    # Never written to, so that the system gives nothing for them.
    blocks = [empty(64 * mib // 256, 64, torch.float32) for _ in range(8)]
    places = {block.data_ptr() for block in blocks}
    del blocks
    assert _lacis.result_memory()[0] >= 512 * mib
    again = [empty(64 * mib // 256, 64, torch.float32) for _ in range(8)]
    assert {block.data_ptr() for block in again} == places
    del again
    for _ in range(4000):
        empty(mib // 256, 64, torch.float32)
    assert _lacis.result_memory()[0] <= 256 * mib


def dense(pair):
    (source, target), weight = pair
    return torch.zeros(N, N).index_put((target, source), weight, accumulate=True)


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_a_layer_s_cached_graph_is_there_for_whoever_looks(flow):
    layer, index = conv.GCNConv(K, 5, cached=True, flow=flow), edges()
    expected = dense(gcn_norm(index, None, N, flow=flow))
    lacis.patch()
    out = layer(features(), index)
    copied, pickled = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
    for other in (layer, copied, pickled):
        kept = other._cached_edge_index
        assert len(kept) == 2 and isinstance(kept, tuple)
        assert torch.allclose(dense(kept), expected, atol=1e-6)
    assert type(copied._cached_edge_index) is tuple and type(pickled._cached_edge_index) is tuple
    index.zero_()  # the first graph stays, whatever comes after
    for _ in range(2):
        for other in (layer, copied, pickled):
            assert torch.allclose(other(features(), index), out, atol=1e-5)
        lacis.unpatch()


def test_memory_of_a_result_serves_another_that_is_a_little_smaller():
    from lacis._torch import empty

    rows = 1 << 17
    lacis.clear_caches()
    wide = empty(rows, 40, torch.float32)
    kept = lacis.report().memory["used_bytes"]
    del wide
    narrow = empty(rows, 34, torch.float32)
    assert lacis.report().memory == {"used_bytes": kept, "kept_bytes": 0}
    del narrow
    small = empty(rows, 8, torch.float32)
    memory = lacis.report().memory
    assert memory["kept_bytes"] == kept and 0 < memory["used_bytes"] < kept
    del small
