"""Dense products around a sparse one: torch's numbers, in any order and for any gradients."""

import itertools

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import lacis
from graphs import edges, features
from lacis import _dense
from lacis._dense import Order, combined
from lacis._inputs import mean_matrix
from torch_geometric.nn import conv

N, K, OUT = 50, 12, 7
ORDERS = {"gather": (True, False), "gather, narrow back": (True, True), "multiply": (False, True)}
TOLERANCE = {torch.float32: 3e-5, torch.float64: 1e-11}


def matrix():
    return mean_matrix(edges(), N, N)


def leaves(dtype, needs, other_target):
    """x, weight, target, root and bias, some of them with gradients."""
    shapes = [(N, K), (OUT, K), (N, 5 if other_target else K), (OUT, 5 if other_target else K)]
    made = [features(*shape, dtype=dtype, seed=at) for at, shape in enumerate(shapes)]
    made.append(features(1, OUT, dtype=dtype, seed=9)[0])
    made = [one.requires_grad_(need) for one, need in zip(made, needs)]
    return made if other_target else [*made[:2], None, *made[3:]]


def reference(dense, given):
    x, weight, target, root, bias = given
    own = x if target is None else target
    y = dense @ (x @ weight.t()) if dense is not None else x @ weight.t()
    y = y if root is None else y + own @ root.t()
    return y if bias is None else y + bias


def gradients(y, given):
    found = [one for one in given if one is not None and one.requires_grad]
    if not found:
        return []
    return torch.autograd.grad((y * features(N, OUT, y.dtype, 77)).sum(), found)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("order", ORDERS)
def test_any_subset_of_gradients_in_any_order(order, dtype):
    a = matrix()
    dense = a.product(torch.eye(N, dtype=dtype))
    for other, needs in itertools.product([False, True], itertools.product([False, True],
                                                                           repeat=5)):
        given = leaves(dtype, needs, other)
        y = combined(given[0], given[1], given[2:4], given[4], Order(a, *ORDERS[order]))
        expected = reference(dense, given)
        assert y.requires_grad == expected.requires_grad
        for own, theirs in zip([y, *gradients(y, given)], [expected, *gradients(expected, given)]):
            torch.testing.assert_close(own, theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("shape", [(0, 3, 2), (1, 1, 1), (5, 0, 3), (7, 130, 65), (200, 17, 1)])
def test_linear_of_any_size(shape):
    n, k, out = shape
    module = torch.nn.Linear(k, out)
    x = features(n, k).requires_grad_()
    given = [x, *module.parameters()]
    theirs, own = module(x), _dense.linear(module, x)
    torch.testing.assert_close(own, theirs, rtol=1e-4, atol=1e-4)
    pairs = (torch.autograd.grad(y.sum(), given) for y in (own, theirs))
    for a, b in zip(*pairs):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_weights_need_not_be_contiguous():
    module = torch.nn.Linear(K, OUT, bias=False)
    module.weight = torch.nn.Parameter(features(K, OUT).t())
    x = features()
    torch.testing.assert_close(_dense.linear(module, x), module(x), rtol=1e-4, atol=1e-4)


def test_gradients_can_be_differentiated_again():
    a, dtype = matrix(), torch.float64
    for order in ORDERS.values():
        given = leaves(dtype, [True] * 5, False)
        inputs = (given[0], given[1], given[3], given[4])

        def function(x, weight, root, bias):
            return combined(x, weight, (None, root), bias, Order(a, *order)).tanh()

        assert torch.autograd.gradgradcheck(function, inputs, nondet_tol=1e-9)


def noticed(change):
    """Calls of a module's forward, or of what stands in its place, after a change to a layer."""
    layer, seen = conv.GCNConv(K, OUT), []
    change(layer.lin, seen)
    expected = layer(features(), edges())
    before = len(seen)
    assert before
    with lacis.patched():
        out = layer(features(), edges())
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    return len(seen) > before


def test_what_watches_a_linear_map_is_called():
    def of_the_object(module, seen):
        original = module.forward
        module.forward = lambda x: (seen.append(1), original(x))[1]

    assert noticed(lambda module, seen: module.register_forward_hook(lambda *_: seen.append(1)))
    assert noticed(lambda module, seen: module.register_forward_pre_hook(lambda *_: seen.append(1)))
    assert noticed(of_the_object)


def test_a_hook_on_all_modules_is_called():
    seen = []
    handle = torch.nn.modules.module.register_module_forward_hook(
        lambda module, *_: seen.append(type(module).__name__))
    try:
        with lacis.patched():
            conv.GCNConv(K, OUT)(features(), edges())
    finally:
        handle.remove()
    assert "Linear" in seen


def test_parametrized_and_pruned_weights_are_used():
    from torch.nn.utils import parametrizations, prune

    for change in (lambda layer: parametrizations.weight_norm(layer.lin_l),
                   lambda layer: prune.random_unstructured(layer.lin_l, "weight", 0.5)):
        layer = conv.SAGEConv(K, OUT)
        change(layer)
        expected = layer(features(), edges())
        with lacis.patched():
            torch.testing.assert_close(layer(features(), edges()), expected, rtol=1e-4, atol=1e-5)


def test_the_result_is_the_same_for_any_number_of_threads():
    layer, x, index = conv.SAGEConv(64, 32), features(3000, 64), edges(3000, 30000)
    found = []
    with lacis.patched():
        for count in (1, 2):
            torch.set_num_threads(count)
            layer.zero_grad()
            y = layer(x, index)
            y.square().sum().backward()
            found.append([y.detach(), *(p.grad.clone() for p in layer.parameters())])
    torch.set_num_threads(2)
    assert all(torch.equal(a, b) for a, b in zip(*found))


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_both_weights_of_the_same_features_at_once(dtype, monkeypatch):
    monkeypatch.setattr(_dense, "_LARGE", 1)
    a = matrix()
    dense = a.product(torch.eye(N, dtype=dtype))
    given = leaves(dtype, [True] * 5, False)
    y = combined(given[0], given[1], given[2:4], given[4], Order(a, *ORDERS["multiply"]))
    for own, other in zip(gradients(y, given), gradients(reference(dense, given), given)):
        assert torch.allclose(own, other, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
        assert own.is_contiguous() and own.untyped_storage().nbytes() == \
            own.numel() * own.element_size()
