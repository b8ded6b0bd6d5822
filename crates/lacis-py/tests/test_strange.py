"""Programs that do odd things: the same results, and no error that the original would not raise."""

import functools
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import lacis
from graphs import edges, features
from torch_geometric import utils
from torch_geometric.nn import conv

warnings.filterwarnings("ignore")
N, K = 50, 12


def replacement(original):
    """As a decorator of somebody else's makes it."""

    @functools.wraps(original)
    def message(self, *args, **kwargs):
        return -original(self, *args, **kwargs)

    return message


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("make", [lambda: conv.GCNConv(K, 5), lambda: conv.GATConv(K, 5),
                                  lambda: conv.SAGEConv(K, 5)])
def test_a_method_replaced_on_torch_geometrics_own_class(make, before, monkeypatch):
    layer = make()
    if not before:
        lacis.patch()
    monkeypatch.setattr(type(layer), "message", replacement(type(layer).message))
    lacis.patch()
    found = layer(features(), edges())
    lacis.unpatch()
    assert torch.allclose(found, layer(features(), edges()), atol=1e-5)


def test_a_forward_replaced_on_torch_geometrics_own_class(monkeypatch):
    monkeypatch.setattr(conv.GCNConv, "forward", lambda self, x, edge_index: 2 * x)
    lacis.patch()
    assert torch.equal(conv.GCNConv(K, 5)(features(), edges()), 2 * features())


def test_another_gcn_norm(monkeypatch):
    def halves(edge_index, *args):
        return edge_index, torch.full((edge_index.size(1),), 0.5)

    monkeypatch.setattr(sys.modules["torch_geometric.nn.conv.gcn_conv"], "gcn_norm", halves)
    layer = conv.GCNConv(K, 5)
    expected = layer(features(), edges())
    lacis.patch()
    assert torch.allclose(layer(features(), edges()), expected, atol=1e-5)


def test_hooks_on_all_modules_and_on_the_aggregation_are_called():
    layer, seen = conv.SAGEConv(K, 5), []
    x, index = features().requires_grad_(), edges()

    def run():
        seen.clear()
        layer(x, index).sum().backward()
        return sorted(seen)

    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, *_: seen.append(type(module).__name__))
    expected = run()
    lacis.patch()
    assert run() == expected and len(expected) == 4
    hook.remove()
    layer.aggr_module.register_full_backward_hook(lambda *_: seen.append("backward"))
    assert run() == ["backward"]


@pytest.mark.parametrize("make", [
    lambda: conv.GCNConv(K, 5, bias=False), lambda: conv.GATConv(K, 5, heads=2, bias=False),
    lambda: conv.GATv2Conv(K, 5, heads=2, bias=False), lambda: conv.SAGEConv(K, 5),
    lambda: conv.TransformerConv(K, 5, root_weight=False)])
def test_results_may_be_changed_in_place(make):
    layer = make()

    def run():
        x = features().requires_grad_()
        y = layer(x, edges())
        y.mul_(2)
        y += 1
        y.square().sum().backward(retain_graph=True)
        y.sum().backward()
        return y.detach(), x.grad

    expected = run()
    lacis.patch()
    for found, right in zip(run(), expected):
        assert torch.allclose(found, right, rtol=1e-4, atol=1e-4)


def test_results_of_softmax_and_what_it_was_given_may_be_changed_in_place():
    index = torch.randint(0, 700, (9000,))
    given = torch.randn(9000, 4)

    def run(change):
        x = given.clone().requires_grad_()
        z = x * 1
        y = utils.softmax(z, index)
        change(y, z)
        y.square().sum().backward()
        return x.grad

    for change in (lambda y, z: y.mul_(3), lambda y, z: z.add_(1)):
        lacis.unpatch()
        expected = run(change)
        lacis.patch()
        assert torch.allclose(run(change), expected, atol=1e-5)


@pytest.mark.parametrize("make", [
    lambda: conv.GCNConv(K, 5), lambda: conv.SAGEConv(K, 5), lambda: conv.GATv2Conv(K, 5),
    lambda: conv.GATConv(K, 5), lambda: conv.ChebConv(K, 5, K=2),
    lambda: conv.SAGEConv(K, 5, aggr="max"), lambda: conv.TransformerConv(K, 5)])
def test_gradients_of_many_at_a_time(make):
    layer = make()
    many = torch.randn(3, N, 5)

    def run():
        x = features().requires_grad_()
        y = layer(x, edges())
        return torch.autograd.grad(y, [x, *layer.parameters()], many, is_grads_batched=True,
                                   allow_unused=True)

    expected = run()
    lacis.patch()
    for found, right in zip(run(), expected):
        assert (found is None) == (right is None)
        assert found is None or torch.allclose(found, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bias", [0.0, 0.3, 1e4])
@pytest.mark.parametrize("make", [conv.GATConv, conv.GATv2Conv])
def test_biases_within_results_of_any_size(make, bias, monkeypatch):
    """Large results hold their layer's bias, and backward passes take it off again; not where too
    little would be left of what it was added to."""
    layer, many = make(K, 3, heads=2), torch.randn(3, N, 6)
    with torch.no_grad():
        layer.bias[1:] = 0.3
        layer.bias[0] = bias
    tensors = list(layer.parameters())

    def run():
        x = features().requires_grad_()
        y = layer(x, edges())
        y.tanh().sum().backward(retain_graph=True)
        first = [x.grad, *(one.grad.clone() for one in tensors)]
        layer.zero_grad()
        together = torch.autograd.grad(y, [x, *tensors], many, is_grads_batched=True,
                                       retain_graph=True, allow_unused=True)
        y.mul_(2)
        return [y.detach(), *first, *together, *torch.autograd.grad(y.square().sum(), tensors)]

    expected = run()
    layer.zero_grad()
    monkeypatch.setattr("lacis._torch._LARGE_BYTES", 1)
    lacis.patch()
    for found, right in zip(run(), expected):
        assert torch.allclose(found, right, rtol=1e-3, atol=1e-3 * max(1, float(right.abs().max())))


@pytest.mark.parametrize("make", [lambda: conv.GCNConv(K, 5), lambda: conv.GATConv(K, 5)])
def test_a_gradient_of_many_gradients_is_right_or_refused(make):
    layer = make()

    def run():
        x = features().requires_grad_()
        found = torch.autograd.functional.jacobian(
            lambda x: layer(x, edges()).tanh().sum(0), x, create_graph=True, vectorize=True)
        return torch.autograd.grad(found.square().sum(), x)[0]

    expected = run()
    lacis.patch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = run()
        except RuntimeError as error:
            assert "differentiated again" in str(error)
        else:
            assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_many_gradients_take_one_pass_each(monkeypatch):
    layer, many, passes = conv.GATConv(K, 5), torch.randn(3, N, 5), []
    lacis.patch()
    kernel = lacis._lacis.gat_backward
    monkeypatch.setattr("lacis._lacis.gat_backward", lambda *given: passes.append(kernel(*given)))
    x = features().requires_grad_()
    torch.autograd.grad(layer(x, edges()), [x, *layer.parameters()], many, is_grads_batched=True)
    assert len(passes) == 3


def test_a_second_gradient_of_some_tensors_is_refused_too():
    """Not zero, as with torch's `once_differentiable`, where unused tensors are allowed."""
    lacis.patch()
    layer, x = conv.GATConv(K, 5).double(), features(dtype=torch.float64).requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x, edges()).tanh().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiated again"):
        torch.autograd.grad(gradient.square().sum(), [x], allow_unused=True)


def test_weights_and_biases_of_other_types_and_shapes():
    graph, wide = conv.GraphConv(K, 5), conv.GCNConv(K, 5)
    wide.bias = torch.nn.Parameter(torch.ones(1))
    expected = wide(features(), edges())
    weight = torch.rand(300, dtype=torch.float64)
    with pytest.raises(RuntimeError) as error:
        graph(features(), edges(), weight)
    lacis.patch()
    assert torch.allclose(wide(features(), edges()), expected, atol=1e-5)
    with pytest.raises(RuntimeError) as found:
        graph(features(), edges(), weight)
    assert str(found.value) == str(error.value)


@pytest.mark.skipif(not hasattr(torch.compiler, "is_exporting"), reason="torch before 2.6")
def test_an_exported_model_names_nothing_of_lacis():
    lacis.patch()
    program = torch.export.export(conv.GCNConv(K, 5), (features(), edges()), strict=False)
    assert not [node for node in program.graph.nodes if "lacis" in str(node.target)]


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("kind", [conv.GATConv, conv.GATv2Conv, conv.TransformerConv])
def test_attention_weights_are_returned_to_who_says_yes_or_no(kind, asked):
    layer = kind(K, 5)
    expected = layer(features(), edges(), return_attention_weights=asked)
    lacis.patch()
    found = layer(features(), edges(), return_attention_weights=asked)
    # What no means differs between versions and layers.
    assert isinstance(found, tuple) == isinstance(expected, tuple)
    if isinstance(found, tuple):
        assert torch.allclose(found[1][1], expected[1][1], atol=1e-5)
        found, expected = found[0], expected[0]
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("make", [
    lambda: conv.GCNConv(K, 0), lambda: conv.SAGEConv(K, 0), lambda: conv.TAGConv(K, 0), lambda: conv.GINConv(torch.nn.Linear(K, 0))])
def test_results_without_columns(make):
    layer = make()
    expected = layer(features(), edges())
    lacis.patch()
    assert layer(features(), edges()).shape == expected.shape == (N, 0)


@pytest.mark.parametrize("make", [
    lambda: conv.SAGEConv(0, 4), lambda: conv.GINConv(torch.nn.Linear(0, 4)),
    lambda: conv.GCNConv(0, 4)])
def test_features_without_columns(make):
    layer = make()
    lacis.patch()
    found = layer(features()[:, :0], edges())
    lacis.unpatch()
    expected = layer(features()[:, :0], edges())
    assert torch.allclose(found, expected, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("layout", [torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse_csc,
                                    torch.Tensor.to_sparse_coo])
def test_products_without_columns(layout):
    matrix = layout(torch.eye(5))
    lacis.patch()
    assert (matrix @ torch.ones(5, 3)[:, :0]).shape == (5, 0)


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_gat_ignores_the_values_of_sparse_tensors(layout, loops):
    index, x = edges(), features().requires_grad_()
    adj = torch.sparse_coo_tensor(index.flip(0), torch.rand(index.size(1)), (N, N)).coalesce()
    adj = adj.to_sparse_csr() if layout == "csr" else adj
    layer = conv.GATConv(K, 5, heads=2, add_self_loops=loops)

    def run():
        y = layer(x, adj)
        return y, torch.autograd.grad(y.square().sum(), x)[0]

    expected = run()
    lacis.patch()
    def calls():
        return sum(row["accelerated"] for row in lacis.report().rows if row["name"] == "GATConv")

    before = calls()
    for found, right in zip(run(), expected):
        assert torch.allclose(found, right, rtol=1e-4, atol=1e-4)
    assert calls() == before + 1, lacis.report()
