"""What programs do between a layer's call and its backward pass, or between two calls: the same
results, and no error that the original would not raise."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import lacis
from graphs import csr, edges, features
from torch.nn import BatchNorm1d, Identity, Linear, ReLU, Sequential
from torch_geometric import utils
from torch_geometric.nn import conv

N, K = 50, 12


def same(found, right):
    return torch.allclose(found, right, rtol=1e-4, atol=1e-5)


def both(run):
    """What a program gives without Lacis and with it."""
    lacis.unpatch()
    torch.manual_seed(0)
    expected = run()
    lacis.patch()
    torch.manual_seed(0)
    return run(), expected


FIRST = [lambda: conv.GCNConv(K, 5), lambda: conv.SAGEConv(K, 5), lambda: conv.GraphConv(K, 5),
         lambda: conv.GINConv(Linear(K, 5)), lambda: conv.SGConv(K, 5, K=2),
         lambda: conv.SAGEConv(K, 5, root_weight=False)]


@pytest.mark.parametrize("make", FIRST)
def test_weights_of_a_first_layer_may_change_before_its_backward_pass(make):
    """Nobody needs a gradient of the features, so nothing follows from the weights."""
    def run():
        layer = make()
        y = layer(features(), edges())
        with torch.no_grad():
            for weight in layer.parameters():
                weight.mul_(2)
        y.square().sum().backward()
        return [weight.grad for weight in layer.parameters()]

    found, expected = both(run)
    assert all(map(same, found, expected))


@pytest.mark.parametrize("make", FIRST)
def test_what_a_frozen_layer_was_given_may_change_before_its_backward_pass(make):
    def run():
        layer, x = make().requires_grad_(False), features().requires_grad_()
        given = x * 1
        y = layer(given, edges())
        given.add_(1)
        y.square().sum().backward()
        return x.grad

    assert same(*both(run))


def test_weights_of_edges_may_change_where_only_they_are_learned():
    def run():
        layer, weight = conv.GraphConv(K, 5).requires_grad_(False), torch.rand(300)
        weight.requires_grad_()
        y = layer(features(), edges(), weight)
        with torch.no_grad():
            weight.mul_(2)
        y.square().sum().backward()
        return weight.grad

    assert same(*both(run))


@pytest.mark.parametrize("make", FIRST[3:])
@pytest.mark.parametrize("change", [lambda x: x.add_(1), None])
def test_features_of_layers_that_gather_first_may_change_or_be_inference_tensors(make, change):
    def run():
        layer = make()
        with torch.inference_mode(change is None):
            x = features()
        y = layer(x, edges())
        if change is not None:
            change(x)
        grads = torch.autograd.grad(y.square().sum(), list(layer.parameters()), create_graph=True)
        sum(grad.square().sum() for grad in grads).backward()
        return [*grads, *(weight.grad for weight in layer.parameters())]

    found, expected = both(run)
    assert all(map(same, found, expected))


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_results_of_sparse_products_may_be_changed_in_place(reduce):
    def run():
        x = features().requires_grad_()
        y = utils.spmm(csr(edges(), N), x, reduce)
        y.relu_()
        y.square().sum().backward()
        return x.grad

    assert same(*both(run))


def test_writing_to_an_edge_index_object_is_noticed():
    from torch_geometric import EdgeIndex

    def run():
        layer, index = conv.GCNConv(K, 5), EdgeIndex(edges(), sparse_size=(N, N))
        before = layer(features(), index)
        index[0, 3] = 40
        return before, layer(features(), index)

    found, expected = both(run)
    assert all(map(same, found, expected)) and not same(*found)


@pytest.mark.parametrize("network", [
    lambda: Identity(), lambda: Sequential(ReLU(inplace=True), Linear(K, 5))])
def test_kept_products_are_not_handed_out(network):
    layer = conv.GINConv(network())
    x, index = features(), edges()
    expected = layer(x, index)
    lacis.optimize(layer)
    with torch.no_grad():
        for _ in range(4):
            found = layer(x, index)
            assert same(found, expected)
            found.mul_(3)


def test_products_of_data_are_made_anew():
    """`weight.data` is a new tensor each time, at version 0 whatever was written to the weight."""
    layer, index = conv.GCNConv(K, 5), edges()
    weight = torch.nn.Parameter(features())
    lacis.optimize(layer)
    with torch.no_grad():
        for step in range(4):
            weight.add_(step)
            found = layer(weight.data, index)
            assert same(found, layer(weight.clone(), index))


def kept_objects():
    return lacis.report().caches["objects"]


@pytest.mark.parametrize("make", [lambda: conv.GCNConv(K, 5), lambda: conv.GraphConv(K, 5),
                                  lambda: conv.TAGConv(K, 5)])
def test_caches_of_new_weights_on_the_same_edges_are_bounded(make):
    lacis.patch()
    layer, x, index, kept = make(), features(), edges(), []
    for seed in range(60):
        layer(x, index, torch.rand(300))
        kept.append(kept_objects())
    assert kept[-1] <= kept[20]


def test_caches_of_new_edges_with_the_same_features_are_bounded():
    """As with edges that are dropped at random, new ones in each epoch."""
    layer, x = lacis.optimize(conv.GCNConv(K, 5)), features()
    for seed in range(60):
        index = edges(seed=seed)
        for _ in range(3):
            layer(x, index)
    del index
    lacis._cache._drop_expired()
    assert kept_objects() < 30


def test_measuring_leaves_statistics_alone():
    def run():
        layer = conv.GINConv(Sequential(Linear(K, 5), BatchNorm1d(5)))
        lacis.report(measure=True)
        y = layer(features(), edges())
        (y * features(k=5)).sum().backward()
        return [*layer.buffers(), *(weight.grad for weight in layer.parameters())]

    found, expected = both(run)
    assert all(map(same, found, expected))


@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_products_under_autocast_have_its_type_or_error(layout):
    matrix = csr(edges(), N)
    matrix = matrix if layout == "csr" else matrix.to_sparse_coo()

    def run():
        found = []
        for product in (torch.sparse.mm, torch.spmm, lambda a, x: a @ x):
            with torch.autocast("cpu", torch.bfloat16):
                try:
                    found.append(product(matrix, features()).dtype)
                except RuntimeError as error:
                    found.append(str(error))
        return found

    found, expected = both(run)
    assert found == expected


def test_gin_widens_bfloat16_features_as_its_eps_does():
    def run():
        return conv.GINConv(Linear(K, 5))(features(dtype=torch.bfloat16), edges())

    found, expected = both(run)
    assert found.dtype is expected.dtype and torch.allclose(found, expected, atol=0.05)


@pytest.mark.parametrize("make", FIRST)
def test_tensors_that_are_negated_views(make):
    """Parts of conjugates: their memory has the other sign."""
    def run():
        layer, x = make(), torch._neg_view(features())
        y = layer(x, edges())
        y.backward(torch._neg_view(torch.ones_like(y)))
        return [y, *(weight.grad for weight in layer.parameters())]

    found, expected = both(run)
    assert all(map(same, found, expected))


@pytest.mark.parametrize("reduce", ["max", "min", "mean"])
def test_second_derivatives_of_reductions(reduce):
    made = torch.Generator().manual_seed(0)
    index = torch.randint(0, 70, (900,), generator=made)
    given = torch.randn(900, 40, generator=made, dtype=torch.float64).round(decimals=1)

    def run():
        x = given.clone().requires_grad_()
        y = utils.scatter(x, index, reduce=reduce)
        (grad,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
        grad.square().sum().backward()
        return grad, x.grad

    found, expected = both(run)
    assert all(map(same, found, expected))


def test_second_derivatives_with_constant_weights_of_edges():
    weight = torch.rand(300)

    def run():
        layer, x = conv.GraphConv(K, 5), features().requires_grad_()
        (grad,) = torch.autograd.grad(layer(x, edges(), weight).tanh().sum(), x, create_graph=True)
        grad.square().sum().backward()
        return grad, x.grad, layer.lin_rel.weight.grad

    found, expected = both(run)
    assert all(map(same, found, expected))
