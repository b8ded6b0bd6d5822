"""Graphs from arrays and back: no copies where none are needed, no wrong graph ever."""

import pickle

import lacis
import numpy as np
import pytest


def made(n=40, e=200, seed=0):
    rng = np.random.default_rng(seed)
    edge_index = rng.integers(0, n, (2, e))
    return n, edge_index, rng.random(e, dtype=np.float32)


def dense(edge_index, weights, n):
    a = np.zeros((n, n), dtype=np.float32)
    np.add.at(a, (edge_index[1], edge_index[0]), weights)
    return a


def dense_of(graph):
    values = np.ones(graph.num_edges, np.float32) if graph.values is None else graph.values
    return dense(graph.edge_index, values, graph.num_nodes)


def test_edges_become_rows_of_targets():
    graph = lacis.Graph.from_edges([[0, 2, 1], [1, 1, 0]], 4)
    assert (graph.num_nodes, graph.num_edges) == (4, 3)
    assert graph.indptr.tolist() == [0, 1, 3, 3, 3]
    assert graph.indices.tolist() == [1, 0, 2]
    assert graph.values is None
    assert graph.edge_index.tolist() == [[1, 0, 2], [0, 1, 1]]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_edges_and_rows_make_the_same_graph(weighted, dtype):
    n, edge_index, weights = made()
    weights = weights if weighted else None
    graph = lacis.Graph.from_edges(edge_index.astype(dtype), n, edge_weight=weights)
    expected = dense(edge_index, 1 if weights is None else weights, n)
    np.testing.assert_allclose(dense_of(graph), expected, rtol=1e-6)
    again = lacis.Graph.from_csr(graph.indptr, graph.indices, graph.values)
    np.testing.assert_array_equal(again.indices, graph.indices)
    np.testing.assert_array_equal(again.indptr, graph.indptr)


def test_rows_may_be_sources_as_in_scipy():
    sparse = pytest.importorskip("scipy.sparse")
    n, edge_index, weights = made(seed=3)
    matrix = sparse.coo_array((weights, (edge_index[0], edge_index[1])), (n, n)).tocsr()
    graph = lacis.Graph.from_csr(matrix, rows="source")
    np.testing.assert_allclose(dense_of(graph), matrix.toarray().T, rtol=1e-6)
    graph = lacis.Graph.from_csr(matrix)
    np.testing.assert_allclose(dense_of(graph), matrix.toarray(), rtol=1e-6)


def test_arrays_are_views_that_cannot_be_written_and_outlive_the_graph():
    x = np.random.default_rng(0).random((5, 3), dtype=np.float32)
    graph = lacis.Graph.from_edges([[0, 1], [1, 2]], 5, x=x)
    first, second = graph.x, graph.x
    assert np.shares_memory(first, second)
    assert np.shares_memory(graph.indices, graph.indices)
    with pytest.raises(ValueError):
        first[0, 0] = 1
    del graph
    np.testing.assert_array_equal(first, x)


def test_labels_are_classes_labels_or_targets():
    edges = [[0, 1], [1, 2]]
    graph = lacis.Graph.from_edges(edges, 3, y=np.array([2, 0, -1]))
    assert graph.y.tolist() == [2, 0, -1] and graph.num_classes == 3
    graph = lacis.Graph.from_edges(edges, 3, y=np.array([[1.0, 0], [1, 1], [0, 0]]))
    assert graph.y.tolist() == [[1, 0], [1, 1], [0, 0]] and "labels" in repr(graph)
    graph = lacis.Graph.from_edges(edges, 3, y=np.array([0.5, 1.5, 2.5]))
    assert graph.y.tolist() == [[0.5], [1.5], [2.5]] and "targets" in repr(graph)


@pytest.mark.parametrize("given, error, word", [
    ({"edge_index": [[0, 9], [1, 1]], "num_nodes": 3}, IndexError, "9"),
    ({"edge_index": [[0, -1], [1, 1]], "num_nodes": 3}, ValueError, "-1"),
    ({"edge_index": [[0, -1], [1, 1]]}, ValueError, "-1"),
    ({"edge_index": [[-7], [-9]]}, ValueError, "-9"),
    ({"edge_index": [[0], [1]], "num_nodes": -1}, ValueError, "num_nodes=-1"),
    ({"edge_index": [[0], [1]], "num_nodes": 2.5}, TypeError, "float"),
    ({"edge_index": [[0, 1, 2]]}, ValueError, "shape"),
    ({"edge_index": [[0.5], [1.0]]}, TypeError, "integers"),
    ({"edge_index": [[0], [1]], "edge_weight": [1.0, 2.0]}, ValueError, "2 weights"),
    ({"edge_index": [[0], [1]], "x": np.zeros((2, 1), complex)}, TypeError, "complex"),
    ({"edge_index": [[0], [1]], "num_nodes": 2, "x": np.zeros((3, 1))}, ValueError, "3"),
    ({"edge_index": [[0], [1]], "z": 1}, TypeError, "z"),
])
def test_what_is_wrong_is_named(given, error, word):
    with pytest.raises(error, match=word):
        lacis.Graph.from_edges(**given)


def test_an_empty_graph_is_a_graph():
    graph = lacis.Graph.from_edges(np.empty((2, 0), dtype=np.int64), 3)
    assert (graph.num_nodes, graph.num_edges) == (3, 0)
    assert graph.edge_index.shape == (2, 0)
    assert lacis.Graph.from_edges([]).num_nodes == 0


def test_graphs_are_opened_by_name_path_and_generator(tmp_path):
    karate = lacis.load_graph("karate")
    assert (karate.num_nodes, karate.num_edges) == (34, 156) and karate.is_undirected()
    drawn = lacis.load_graph("sbm:n=50,e=200,classes=4,features=6,seed=2")
    assert (drawn.num_nodes, drawn.num_features, drawn.num_classes) == (50, 6, 4)
    drawn.save(tmp_path / "saved")
    again = lacis.load_graph(tmp_path / "saved")
    np.testing.assert_array_equal(again.x, drawn.x)
    np.testing.assert_array_equal(again.indices, drawn.indices)
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    assert lacis.load_graph(tmp_path / "edges.csv", undirected=True).num_edges == 4


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        lacis.load_graph(tmp_path / "nowhere.csv")
    assert "nowhere.csv" in str(caught.value)
    with pytest.raises(ValueError):
        lacis.load_graph("rmat:n=-3,e=5")


def test_pickles_are_the_same_graph():
    n, edge_index, weights = made()
    graph = lacis.Graph.from_edges(edge_index, n, edge_weight=weights, y=np.arange(n) % 3,
                                   train_mask=np.arange(n) < 9)
    again = pickle.loads(pickle.dumps(graph))
    np.testing.assert_array_equal(again.values, graph.values)
    np.testing.assert_array_equal(again.y, graph.y)
    assert again.splits["canonical"]["train"].tolist() == list(range(9))


def test_pyg_data_there_and_back():
    torch = pytest.importorskip("torch")
    Data = pytest.importorskip("torch_geometric.data").Data
    n, edge_index, weights = made(seed=5)
    data = Data(x=torch.randn(n, 4), edge_index=torch.from_numpy(edge_index),
                edge_weight=torch.from_numpy(weights), y=torch.arange(n) % 3,
                train_mask=torch.arange(n) < 10, test_mask=torch.arange(n) >= 30)
    graph = lacis.Graph.from_pyg(data)
    back = graph.to_pyg()
    assert torch.equal(back.x, data.x) and torch.equal(back.y, data.y)
    assert torch.equal(back.train_mask, data.train_mask)
    assert torch.equal(back.test_mask, data.test_mask)
    dense_back = torch.zeros(n, n).index_put_(tuple(back.edge_index), back.edge_weight, True)
    dense_data = torch.zeros(n, n).index_put_(tuple(data.edge_index), data.edge_weight, True)
    torch.testing.assert_close(dense_back, dense_data)


@pytest.mark.parametrize("given", [None, np.eye(3)])
def test_rows_without_columns_are_refused(given):
    with pytest.raises(TypeError, match="SciPy"):
        lacis.Graph.from_csr(given)


def test_tensors_of_other_layouts_and_types_are_read():
    torch = pytest.importorskip("torch")
    x = torch.eye(3)
    for given in (x.to_sparse(), x.to_sparse_csr(), x.to(torch.bfloat16)):
        graph = lacis.Graph.from_edges([[0, 1], [1, 2]], 3, x=given)
        np.testing.assert_array_equal(graph.x, np.eye(3))


def test_masks_of_several_splits_are_refused_with_advice():
    masks = np.zeros((3, 10), bool)
    with pytest.raises(ValueError, match="column for each split, train_mask"):
        lacis.Graph.from_edges([[0, 1], [1, 2]], 3, train_mask=masks)
