"""What lies between layers: torch's numbers and gradients on large matrices, torch itself
elsewhere."""

import pickle

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import lacis
from lacis import _pointwise

ROWS, COLS = 1 << 13, 40
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}


@pytest.fixture(autouse=True)
def measured():
    lacis.patch()
    before = {row["name"]: row["accelerated"] for row in lacis.report().rows}
    yield lambda name: accelerated(name) - before.get(name, 0)


def accelerated(name):
    return sum(row["accelerated"] for row in lacis.report().rows if row["name"] == name)


def matrix(dtype=torch.float32, rows=ROWS, seed=0):
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, COLS, generator=made, dtype=torch.float64).to(dtype)
    x[0], x[1, ::2], x[2, 3] = 0.0, -0.0, 1e4
    return x


def classes(seed=1):
    return torch.randint(0, COLS, (ROWS,), generator=torch.Generator().manual_seed(seed))


def both(function, x):
    """A function's result and gradient, patched and not."""
    found = []
    weights = matrix(x.dtype, seed=5)
    for _ in range(2):
        own = x.clone().requires_grad_()
        y = function(own * 1.0)
        (y if y.dim() == 0 else (y * weights).sum()).backward()
        found += [y.detach(), own.grad]
        lacis.unpatch()
    lacis.patch()
    return found


FUNCTIONS = {
    "relu": [F.relu, lambda x: torch.relu(x), lambda x: x.relu(), torch.nn.ReLU()],
    "log_softmax": [lambda x: F.log_softmax(x, dim=1), lambda x: torch.log_softmax(x, -1),
                    lambda x: x.log_softmax(dim=-1), torch.nn.LogSoftmax(dim=1)],
    "cross_entropy": [lambda x: F.cross_entropy(x, classes()),
                      lambda x: 3 * torch.nn.CrossEntropyLoss()(x, classes()),
                      lambda x: F.cross_entropy(x, classes(), ignore_index=7)],
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name, function", [(n, f) for n, fs in FUNCTIONS.items() for f in fs[:3]])
def test_values_and_gradients(name, function, dtype, measured):
    y, gradient, expected, expected_gradient = both(function, matrix(dtype))
    assert measured(name) >= 1
    if name == "relu":
        assert torch.equal(y, expected) and torch.equal(gradient, expected_gradient)
    bound = TOLERANCE[dtype]
    torch.testing.assert_close(y, expected, rtol=bound, atol=bound)
    torch.testing.assert_close(gradient, expected_gradient, rtol=bound, atol=bound)


@pytest.mark.parametrize("name, function", [(n, f) for n, fs in FUNCTIONS.items() for f in fs[3:]])
def test_modules_and_methods(name, function, measured):
    y, gradient, expected, expected_gradient = both(function, matrix())
    assert measured(name) == 1
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(gradient, expected_gradient)


def test_classes_that_are_none_raise_as_without():
    x = matrix().requires_grad_()
    for wrong in (classes() * 2 - COLS, classes() + 1, classes() - 1):
        with pytest.raises(IndexError):
            F.cross_entropy(x, wrong)


def test_relu_of_what_is_no_number():
    x = matrix()
    x[5, :3] = torch.tensor([float("nan"), float("inf"), -float("inf")])

    def blown_up(x):
        y = torch.relu(x)
        y.register_hook(lambda grad: torch.full_like(grad, float("inf")))
        return y

    y, gradient, expected, expected_gradient = both(blown_up, x)
    assert torch.equal(y.nan_to_num(7.0), expected.nan_to_num(7.0))
    assert torch.equal(gradient.nan_to_num(7.0), expected_gradient.nan_to_num(7.0))


def test_nobody_counts():
    x = matrix().requires_grad_()
    loss = F.cross_entropy(x, torch.full((ROWS,), -100))
    loss.backward()
    assert loss.isnan() and torch.equal(x.grad, torch.zeros_like(x))


def test_going_back_twice():
    x = matrix()
    leaf = x.clone().requires_grad_()
    loss = F.cross_entropy(leaf.view(ROWS, COLS), classes())
    loss.backward(retain_graph=True)
    once = leaf.grad.clone()
    loss.backward(retain_graph=True)
    assert torch.equal(leaf.grad, 2 * once)
    (loss * 2).backward()
    torch.testing.assert_close(leaf.grad, 4 * once)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_a_change_of_the_logits_after_the_loss():
    leaf = matrix().requires_grad_()
    logits = leaf * 1.0
    loss = F.cross_entropy(logits, classes())
    logits.mul_(0.0)
    loss.backward()
    other = leaf.detach().clone().requires_grad_()
    F.cross_entropy(other, classes()).backward()
    assert torch.equal(leaf.grad, other.grad)


@pytest.mark.parametrize("name, function", [(n, fs[0]) for n, fs in FUNCTIONS.items()])
def test_gradients_of_gradients(name, function, measured):
    def second(x):
        x = x.clone().requires_grad_()
        y = function(x * x)
        loss = y if y.dim() == 0 else (y * matrix(x.dtype, seed=5)).sum()
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        (first * first).sum().backward()
        return x.grad

    x = matrix(torch.float64)
    x[2, 3] = 1.0
    own = second(x)
    assert measured(name) == 1
    lacis.unpatch()
    torch.testing.assert_close(own, second(x))


def test_small_ones_and_others_are_torch_s(measured):
    x = matrix()
    torch.relu(x[:10])
    torch.relu(x.to(torch.bfloat16))
    torch.relu(x.t())
    torch.relu(x.view(ROWS, 4, 10))
    x.log_softmax(dim=0)
    x.log_softmax(1, torch.float64)
    F.cross_entropy(x, classes(), reduction="sum")
    F.cross_entropy(x, classes(), label_smoothing=0.1)
    F.cross_entropy(x, classes(), torch.ones(COLS))
    F.cross_entropy(x, x.softmax(1))
    F.relu(x.clone(), inplace=True)
    with torch.autocast("cpu"):
        x.log_softmax(1)
    torch.func.grad(lambda x: torch.relu(x).sum())(x)
    torch.func.vmap(torch.relu)(x)
    assert not any(map(measured, FUNCTIONS))


def test_unpatching_restores_the_identical_objects():
    lacis.unpatch()

    def all_of_them():
        return [torch.relu, torch.log_softmax, torch.Tensor.relu, torch.Tensor.log_softmax,
                F.cross_entropy, torch.nn.modules.loss.F.cross_entropy]

    before = all_of_them()
    lacis.patch()
    patched = all_of_them()
    assert all(a is not b for a, b in zip(patched, before))
    lacis.unpatch()
    assert all(a is b for a, b in zip(all_of_them(), before))
    assert "relu" not in torch.Tensor.__dict__ and "log_softmax" not in torch.Tensor.__dict__
    lacis.patch()
    assert all(a is b for a, b in zip(all_of_them(), patched))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(COLS, COLS)

    def forward(self, x):
        h = F.relu(torch.relu(self.linear(x))).relu()
        return F.log_softmax(h, dim=1)


def test_torch_script_compiles_the_originals():
    net, x = Net(), matrix()
    expected = net(x)
    for made in (torch.jit.script(net), torch.jit.trace(net, x)):
        torch.testing.assert_close(made(x), expected)
    loss = torch.jit.script(torch.nn.CrossEntropyLoss())
    torch.testing.assert_close(loss(x, classes()), F.cross_entropy(x, classes()))
    lacis.unpatch()
    torch.testing.assert_close(torch.jit.script(net)(x), expected)


def test_functions_can_be_pickled():
    for function in (torch.relu, torch.log_softmax, torch.Tensor.relu, torch.Tensor.log_softmax,
                     F.cross_entropy):
        assert pickle.loads(pickle.dumps(function)) is function
    layer = torch.nn.TransformerEncoderLayer(8, 2, activation=torch.relu)
    assert pickle.loads(pickle.dumps(layer)).activation is torch.relu


@pytest.mark.parametrize("function", [lambda x: torch.relu(x).sum(0)[:3],
                                      lambda x: F.log_softmax(x, 1).sum(0)[:3],
                                      lambda x: F.cross_entropy(x, classes()).expand(3)])
def test_many_gradients_at_a_time(function):
    x, v = matrix(), torch.tensor(2.0)

    def found():
        return torch.autograd.functional.jacobian(lambda v: function(x * v), v, vectorize=True)

    patched = found()
    lacis.unpatch()
    torch.testing.assert_close(patched, found(), rtol=1e-4, atol=1e-4)


def test_torch_fx_and_compile_see_torch():
    net, x = Net(), matrix()
    expected = net(x)
    traced = torch.fx.symbolic_trace(net)
    torch.testing.assert_close(traced(x), expected)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected)


def test_the_size_from_which_on():
    assert ROWS * COLS >= _pointwise.LARGE > (ROWS // 2) * COLS
