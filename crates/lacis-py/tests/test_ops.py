"""The operators on NumPy arrays and on torch tensors, against loops that anybody can check."""

import lacis
import numpy as np
import pytest
from lacis import ops

N, E, K = 30, 160, 12


@pytest.fixture(params=[np.float32, np.float64])
def dtype(request):
    return request.param


@pytest.fixture
def made(dtype):
    rng = np.random.default_rng(1)
    # Node 29 has no in-edges.
    edges = np.stack([rng.integers(0, N, E), rng.integers(0, N - 1, E)])
    x = rng.standard_normal((N, K)).astype(dtype)
    return edges, x, rng.random(E).astype(dtype)


def slow(edges, rows, reduce):
    """Per target, the rows of its edges as one; zeros where there are none."""
    function = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}[reduce]
    out = np.zeros((N, rows.shape[1]), rows.dtype)
    for node in range(N):
        if (edges[1] == node).any():
            out[node] = function(rows[edges[1] == node], axis=0)
    return out


def close(found, expected):
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    tolerance = 1e-5 if expected.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("weighted", [False, True])
def test_spmm(made, reduce, weighted):
    edges, x, weight = made
    weight = weight if weighted else None
    rows = x[edges[0]] * (1 if weight is None else weight[:, None])
    close(ops.spmm(edges, x, weight, reduce=reduce), slow(edges, rows.astype(x.dtype), reduce))


def test_spmm_of_graphs_and_matrices(made):
    sparse = pytest.importorskip("scipy.sparse")
    edges, x, weight = made
    # A graph's own weights are float32.
    weight = weight.astype(np.float32).astype(x.dtype)
    expected = slow(edges, x[edges[0]] * weight[:, None], "sum")
    graph = lacis.Graph.from_edges(edges, N, edge_weight=weight)
    close(ops.spmm(graph, x), expected)
    matrix = sparse.coo_array((weight, (edges[1], edges[0])), (N, N))
    close(ops.spmm(matrix.tocsr(), x), expected)
    close(ops.spmm(graph, x[:, 0]), expected[:, 0])


def test_sddmm(made):
    edges, x, _ = made
    u, v = x, x[::-1].copy()
    close(ops.sddmm(edges, u, v), (u[edges[1]] * v[edges[0]]).sum(axis=1))
    heads = (u[edges[1]] * v[edges[0]]).reshape(E, 3, 4).sum(axis=2)
    close(ops.sddmm(edges, u, v, heads=3), heads)
    close(ops.sddmm(edges, u, v, op="add"), u[edges[1]] + v[edges[0]])
    close(ops.sddmm(edges, u, v, op="mul"), u[edges[1]] * v[edges[0]])


def softmax(edges, scores):
    out = np.empty_like(scores)
    for node in range(N):
        mine = edges[1] == node
        if mine.any():
            powers = np.exp(scores[mine] - scores[mine].max(axis=0))
            out[mine] = powers / powers.sum(axis=0)
    return out


def test_edge_softmax(made):
    edges, x, weight = made
    close(ops.edge_softmax(edges, weight), softmax(edges, weight[:, None])[:, 0])
    scores = np.stack([weight, -weight], axis=1)
    close(ops.edge_softmax(edges, scores), softmax(edges, scores))
    close(ops.edge_softmax(edges[1], scores), softmax(edges, scores))


def test_attention(made):
    edges, x, _ = made
    q, k, v = x, x[::-1].copy(), np.roll(x, 3, axis=0)
    heads, width = 3, K // 3
    scores = (q[edges[1]] * k[edges[0]]).reshape(E, heads, width).sum(axis=2) / np.sqrt(width)
    weights = softmax(edges, scores.astype(x.dtype))
    rows = (weights[:, :, None] * v[edges[0]].reshape(E, heads, width)).reshape(E, K)
    close(ops.attention(edges, q, k, v, heads=heads), slow(edges, rows.astype(x.dtype), "sum"))


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_scatter_and_segments(made, reduce):
    edges, x, _ = made
    rows, index = x[edges[0]], edges[1]
    close(ops.scatter(rows, index, dim_size=N, reduce=reduce), slow(edges, rows, reduce))
    order = np.argsort(index, kind="stable")
    ptr = np.searchsorted(index[order], np.arange(N + 1))
    close(ops.segment_reduce(rows[order], ptr, reduce=reduce), slow(edges, rows, reduce))
    deep = rows.reshape(E, 3, 4)
    close(ops.scatter(deep, index, dim_size=N, reduce=reduce),
          slow(edges, rows, reduce).reshape(N, 3, 4))


def test_gather(made):
    edges, x, _ = made
    np.testing.assert_array_equal(ops.gather(x, edges[0]), x[edges[0]])


def test_arrays_that_are_not_together_and_other_numbers(made):
    edges, x, _ = made
    expected = slow(edges, x[edges[0]], "sum")
    close(ops.spmm(edges.astype(np.int32), np.asfortranarray(x)), expected)
    close(ops.spmm(np.asfortranarray(edges), np.repeat(x, 2, axis=1)[:, ::2]), expected)
    assert ops.spmm(edges, np.ones((N, 2), dtype=np.int64)).dtype == np.float32


@pytest.mark.parametrize("call, error", [
    (lambda: ops.spmm([[0], [1]], np.ones((1, 2), np.float32)), None),
    (lambda: ops.spmm([[3], [1]], np.ones((2, 2), np.float32)), IndexError),
    (lambda: ops.spmm([[-1], [1]], np.ones((2, 2), np.float32)), IndexError),
    (lambda: ops.spmm([[0], [1]], np.ones((2, 2), np.float32), reduce="median"), ValueError),
    (lambda: ops.spmm([[0], [1]], np.ones((2, 2), np.float32), [1.0, 2.0]), ValueError),
    (lambda: ops.spmm([[0], [1]], np.ones((2, 2), complex)), TypeError),
    (lambda: ops.spmm([0, 1], np.ones((2, 2), np.float32)), ValueError),
    (lambda: ops.scatter(np.ones((3, 2), np.float32), [0, 1]), ValueError),
    (lambda: ops.scatter(np.ones((2, 2), np.float32), [0, 5], dim_size=3), IndexError),
    (lambda: ops.segment_reduce(np.ones((2, 2), np.float32), [0, 3]), ValueError),
    (lambda: ops.attention([[0], [1]], *[np.ones((2, 4), np.float32)] * 3, heads=3), ValueError),
])
def test_misuse_is_named(call, error):
    if error is None:
        assert call().shape == (2, 2)
    else:
        with pytest.raises(error):
            call()


def test_empty_arrays():
    none = np.empty((2, 0), np.int64)
    assert not ops.spmm(none, np.ones((3, 4), np.float32)).any()
    assert ops.spmm(none, np.ones((3, 0), np.float32)).shape == (3, 0)
    assert ops.sddmm(none, np.ones((3, 4)), np.ones((3, 4))).shape == (0,)
    assert ops.scatter(np.ones((0, 4), np.float32), [], dim_size=2).shape == (2, 4)


def tensors(made):
    torch = pytest.importorskip("torch")
    edges, x, weight = made
    return torch, torch.from_numpy(edges), torch.from_numpy(x), torch.from_numpy(weight)


def test_tensors_give_tensors(made):
    torch, edges, x, weight = tensors(made)
    array, values = x.numpy(), weight.numpy()
    for name, given, kwargs in [
        ("spmm", (x, weight), {}), ("spmm", (x,), {"reduce": "max"}),
        ("spmm", (x, weight), {"reduce": "mean"}), ("sddmm", (x, x.flip(0)), {"heads": 3}),
        ("edge_softmax", (weight,), {}), ("attention", (x, x.flip(0), x), {"heads": 2}),
    ]:
        found = getattr(ops, name)(edges, *given, **kwargs)
        arrays = [item.numpy() for item in given]
        expected = getattr(ops, name)(edges.numpy(), *arrays, **kwargs)
        assert isinstance(found, torch.Tensor)
        close(found.numpy(), expected)
    assert torch.equal(ops.gather(x, edges[0]), x[edges[0]])
    close(ops.scatter(x[edges[0]], edges[1], dim_size=N).numpy(),
          slow(edges.numpy(), array[edges[0].numpy()], "sum"))
    adjacency = torch.sparse_coo_tensor(edges.flip(0), weight, (N, N)).to_sparse_csr()
    close(ops.spmm(adjacency, x).numpy(), ops.spmm(edges.numpy(), array, values))


def test_gradients_of_tensors():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 6, (2, 15), generator=generator)

    def numbers(*shape):
        return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()

    x, y, z, weight = numbers(6, 4), numbers(6, 4), numbers(6, 4), numbers(15)
    check = torch.autograd.gradcheck
    check(lambda x, w: ops.spmm(edges, x, w), (x, weight))
    check(lambda x: ops.spmm(edges, x, reduce="max"), (x,))
    check(lambda x: ops.spmm(edges, x, reduce="mean"), (x,))
    check(lambda x, y: ops.sddmm(edges, x, y, heads=2), (x, y))
    check(lambda x, y: ops.sddmm(edges, x, y, op="mul"), (x, y))
    check(lambda w: ops.edge_softmax(edges, w, num_nodes=6), (weight,))
    check(lambda x, y, z: ops.attention(edges, x, y, z, heads=2), (x, y, z))
    check(lambda x: ops.scatter(x, edges[0, :6], reduce="max"), (x,))
    check(lambda x: ops.segment_reduce(x, [0, 2, 2, 6], reduce="mean"), (x,))


def test_misuse_of_options_is_named():
    x = np.ones((3, 2), np.float32)
    for heads in (0, None, 1.5):
        with pytest.raises(ValueError, match=f"heads={heads}"):
            lacis.ops.sddmm([[0], [1]], x, x, heads=heads)
    with pytest.raises(ValueError, match="scatter"):
        lacis.ops.spmm([[0], [1]], x, reduce="mul")
    with pytest.raises(IndexError, match="outside"):
        lacis.ops.gather(x, [-1])


def test_attention_without_columns():
    none, edges = np.ones((3, 0), np.float32), [[0, 1, 2], [1, 1, 0]]
    expected = [[1, 1], [1, 1], [0, 0]]
    np.testing.assert_allclose(ops.attention(edges, none, none, np.ones((3, 2))), expected)
    torch = pytest.importorskip("torch")
    none = torch.from_numpy(none)
    found = ops.attention(torch.tensor(edges), none, none, torch.ones(3, 2))
    assert found.tolist() == expected


def test_misuse_of_tensors_is_named():
    torch = pytest.importorskip("torch")
    x, edges = torch.ones(3, 2), torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(TypeError, match="integers"):
        ops.spmm(edges.float(), x)
    with pytest.raises(TypeError, match="sparse"):
        ops.spmm(edges, x.to_sparse())
    with pytest.raises(IndexError, match="outside"):
        ops.gather(x, [3])
    with pytest.raises(IndexError, match="outside"):
        ops.scatter(x, [0, 0, 0], dim_size=-1)
    matrix = torch.eye(3).to_sparse().requires_grad_()
    with pytest.raises(ValueError, match="no gradient"):
        ops.spmm(matrix, x)


def test_weights_of_tensors_may_be_arrays_and_lists(made):
    torch = pytest.importorskip("torch")
    edges, x, weight = made
    expected = ops.spmm(edges, x, weight)
    for given in (weight, weight.tolist()):
        close(ops.spmm(torch.from_numpy(edges), torch.from_numpy(x), given).numpy(), expected)
