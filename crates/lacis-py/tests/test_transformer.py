"""A Transformer layer as one operation: its options, who needs a gradient, and backward passes that
meet more than one gradient or a changed layer."""

import copy
import itertools

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import lacis
from graphs import edges, features
from torch_geometric.nn import TransformerConv

N, K = 200, 12
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}
OPTIONS = [{}, {"concat": False}, {"beta": True}, {"concat": False, "beta": True},
           {"root_weight": False}, {"bias": False}, {"edge_dim": 3}, {"edge_dim": 3, "bias": False},
           {"root_weight": False, "concat": False, "bias": False}]
PARAMETERS = [f"lin_{name}.{kind}" for name in ("query", "key", "value", "skip")
              for kind in ("weight", "bias")]


def given(layer, dtype=torch.float32, n=N):
    """Features that need a gradient, edges, and what these have."""
    torch.manual_seed(1)
    x, index = features(n, K, dtype=dtype).requires_grad_(), edges(n, 8 * n)
    if layer.lin_edge is None:
        return [x, index]
    return [x, index, torch.randn(8 * n, 3, dtype=dtype, requires_grad=True)]


def gradients(layer, inputs, out=None):
    """The result, and the gradients of inputs and parameters, by name."""
    layer.zero_grad()
    leaves = [one for one in inputs if one.requires_grad]
    for leaf in leaves:
        leaf.grad = None
    out = layer(*inputs) if out is None else out
    out.square().sum().backward(retain_graph=True)
    found = {name: one.grad for name, one in layer.named_parameters()}
    found |= {f"input {at}": leaf.grad for at, leaf in enumerate(leaves)}
    return {"result": out.detach(), **{name: None if grad is None else grad.clone()
                                       for name, grad in found.items()}}


def same(found, right, dtype=torch.float32):
    assert found.keys() == right.keys()
    for name, truth in right.items():
        assert (found[name] is None) == (truth is None), name
        if truth is not None:
            # A bias of keys changes nothing: what is found are sums of what rounding left of many
            # terms, which are as large as those of the weight's gradient.
            of = right.get(name.replace("key.bias", "key.weight"))
            scale = max(1.0, *(one.abs().max().item() for one in (truth, of) if one is not None))
            assert torch.allclose(found[name], truth, 0, TOLERANCE[dtype] * scale), name


def accelerated():
    return sum(row["accelerated"] for row in lacis.report().rows)


def both(layer, dtype=torch.float32, n=N):
    """What the original finds, and what is found here."""
    inputs = given(layer, dtype, n)
    right = gradients(copy.deepcopy(layer), inputs)
    with lacis.patched():
        before = accelerated()
        found = gradients(layer, inputs)
        assert accelerated() == before + 1
    return found, right


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(options, dtype):
    torch.manual_seed(0)
    same(*both(TransformerConv(K, 5, heads=2, **options).to(dtype), dtype), dtype)


@pytest.mark.parametrize("heads, channels", [(8, 4), (1, 40), (4, 16), (1, 128), (2, 33), (1, 1)])
def test_results_that_lie_in_memory_of_their_own(heads, channels):
    """So many rows that results come from kept memory and rows are done many at a time."""
    torch.manual_seed(0)
    same(*both(TransformerConv(K, channels, heads=heads), n=9000))


@pytest.mark.parametrize("frozen", [PARAMETERS[at:at + 1] for at in range(8)]
                         + [PARAMETERS[::2], PARAMETERS[1::2], PARAMETERS], ids=",".join)
def test_parameters_that_need_no_gradient(frozen):
    layer = TransformerConv(K, 5, heads=2)
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name not in frozen)
    same(*both(layer))


@pytest.mark.parametrize("which", [0, 1])
def test_features_that_need_no_gradient(which):
    torch.manual_seed(0)
    layer = TransformerConv((K, K), 5, heads=2)
    pair = [features(N, K, seed=seed).requires_grad_(seed == which) for seed in (0, 1)]
    index = edges(N, 1000)
    right = gradients(copy.deepcopy(layer), [*pair], copy.deepcopy(layer)(tuple(pair), index))
    right = {name: one for name, one in right.items() if name.startswith(("result", "input"))}
    with lacis.patched():
        found = gradients(layer, [*pair], layer(tuple(pair), index))
    same({name: found[name] for name in right}, right)


@pytest.mark.parametrize("name", ["query", "key", "value", "skip"])
def test_a_map_with_a_hook_is_called(name):
    layer, seen = TransformerConv(K, 5, heads=2), []
    getattr(layer, f"lin_{name}").register_forward_hook(lambda *_: seen.append(name))
    # The layer itself both times: copies made by older versions have no hooks.
    inputs = given(layer)
    right = gradients(layer, inputs)
    with lacis.patched():
        same(gradients(layer, inputs), right)
    assert seen == [name, name]


@pytest.mark.parametrize("n", [N, 9000])
def test_a_second_pass_over_a_retained_graph(n):
    torch.manual_seed(0)
    layer = TransformerConv(K, 16, heads=2)
    inputs = given(layer, n=n)
    right = gradients(copy.deepcopy(layer), inputs)
    with lacis.patched():
        out = layer(*inputs)
        first, again = gradients(layer, inputs, out), gradients(layer, inputs, out)
    same(first, right)
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_biases_that_change_before_a_second_pass():
    """They are not what the gradient follows from: torch's own maps do not look at them again."""
    layer = TransformerConv(K, 5, heads=2)
    inputs = given(layer)
    right = gradients(copy.deepcopy(layer), inputs)
    with lacis.patched():
        out = layer(*inputs)
        gradients(layer, inputs, out)
        with torch.no_grad():
            for name, kind in itertools.product(("query", "key", "value"), ("bias",)):
                getattr(getattr(layer, f"lin_{name}"), kind).add_(1.0)
        same(gradients(layer, inputs, out), right)


def test_many_gradients_at_a_time():
    layer = TransformerConv(K, 5, heads=2)
    inputs = given(layer)
    grads = torch.randn(3, N, 10)
    expected = torch.autograd.grad(copy.deepcopy(layer)(*inputs), inputs[0], grads,
                                   is_grads_batched=True)[0]
    with lacis.patched():
        found = torch.autograd.grad(layer(*inputs), inputs[0], grads, is_grads_batched=True)[0]
    assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("only", ["lin_key.bias", "lin_value.bias", "lin_query.weight"])
def test_a_gradient_of_a_gradient_is_refused(only):
    """Also where nothing but a bias could have one."""
    layer = TransformerConv(K, 5, heads=2)
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name == only)
    inputs, parameter = given(layer), dict(layer.named_parameters())[only]
    with lacis.patched():
        out = layer(inputs[0].detach(), inputs[1])
        grad, = torch.autograd.grad(out.square().sum(), parameter, create_graph=True)
        with pytest.raises(RuntimeError, match="cannot be differentiated again"):
            torch.autograd.grad(grad.square().sum(), parameter)
