"""`patch()` itself: what it replaces and restores, where it stands aside, and what it reports."""

import copy
import os
import subprocess
import sys
import warnings
from typing import Optional

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric")

import lacis
from graphs import csr, edges, features
from torch_geometric import utils
from torch_geometric.nn import conv
from torch_geometric.typing import OptTensor

warnings.filterwarnings("ignore")
N, K = 50, 12


def accelerated(name):
    return sum(row["accelerated"] for row in lacis.report().rows if row["name"] == name)


def why(name):
    return {w for row in lacis.report().rows if row["name"] == name for w in row["why"]}


def originals():
    torch_sparse = sys.modules.get("torch_sparse.matmul")
    return [conv.GCNConv.forward, conv.GATConv.forward, utils.scatter, utils.spmm, utils.softmax,
            utils.segment, sys.modules["torch_geometric.nn.aggr.base"].scatter,
            sys.modules["torch_geometric.nn.conv.gat_conv"].softmax, torch.sparse.mm, torch.spmm,
            torch.Tensor.__matmul__, getattr(torch_sparse, "matmul", None)]


def test_unpatching_restores_the_identical_objects():
    before = originals()
    handle = lacis.patch()
    again = lacis.patch()
    assert repr(handle) == repr(again) and "GATConv" in repr(handle)
    assert all(a is not b or a is None for a, b in zip(originals(), before))
    lacis.unpatch()
    lacis.unpatch()
    assert all(a is b for a, b in zip(originals(), before))
    assert "__matmul__" not in torch.Tensor.__dict__


def test_the_context_manager_keeps_what_was_patched_before():
    before = conv.GCNConv.forward

    @lacis.patched()
    def inside():
        return conv.GCNConv.forward

    assert inside() is not before and conv.GCNConv.forward is before
    lacis.patch()
    with lacis.patched():
        pass
    assert conv.GCNConv.forward is not before


def test_disabled_by_the_environment(monkeypatch):
    monkeypatch.setenv("LACIS_DISABLE", "1")
    before = originals()
    assert "LACIS_DISABLE" in repr(lacis.patch())
    assert all(a is b for a, b in zip(originals(), before))


def test_patching_before_torch_geometric_is_imported():
    code = """
import lacis
lacis.patch()
import torch
from torch_geometric.nn import GCNConv
from torch_geometric.utils import scatter
layer = GCNConv(3, 2)
layer(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]]))
assert lacis.report().rows[0]["accelerated"] == 1, lacis.report()
"""
    clean = {**os.environ, "LACIS_DISABLE": ""}
    subprocess.run([sys.executable, "-c", code], check=True, env=clean)


class Doubled(conv.GCNConv):
    def message(self, x_j, edge_weight):
        return 2 * super().message(x_j, edge_weight)


class Shifted(conv.GATConv):
    # PyG before 2.6 takes what has no type for something that is never None.
    def edge_update(self, alpha_j: torch.Tensor, alpha_i: OptTensor, edge_attr: OptTensor,
                    index: torch.Tensor, ptr: OptTensor, dim_size: Optional[int]):
        return super().edge_update(alpha_j + 1, alpha_i, edge_attr, index, ptr, dim_size)


class Plain(conv.GCNConv):
    pass


def hooked():
    layer = conv.GCNConv(K, 5)
    layer.register_message_forward_hook(lambda module, inputs, out: 3 * out)
    return layer


def explained():
    layer = conv.GCNConv(K, 5)
    layer.explain = True
    layer._edge_mask = torch.ones(300)
    layer._loop_mask = torch.ones(300, dtype=torch.bool)
    layer._apply_sigmoid = False
    return layer


def replaced():
    layer = conv.GCNConv(K, 5)
    layer.message = lambda x_j, edge_weight: -x_j
    return layer


@pytest.mark.parametrize("make, name", [
    (lambda: Doubled(K, 5), "GCNConv"), (lambda: Shifted(K, 5), "GATConv"), (hooked, "GCNConv"),
    (replaced, "GCNConv"), (lambda: conv.SAGEConv(K, 5, aggr="lstm"), "SAGEConv"),
    (lambda: conv.SAGEConv(K, 5, aggr=["mean", "max"]), "SAGEConv"),
    (lambda: conv.SAGEConv(K, 5, aggr="median"), "SAGEConv"),
    (lambda: conv.GCNConv(K, 6, decomposed_layers=2), "GCNConv")])
def test_what_is_changed_falls_through(make, name):
    torch.manual_seed(0)
    layer = make()
    index = edges()[:, edges()[1].argsort(stable=True)]
    expected = layer(features(), index).detach()
    lacis.patch()
    before = accelerated(name)
    assert torch.allclose(layer(features(), index), expected, atol=1e-5)
    assert accelerated(name) == before and why(name)


def test_an_unchanged_subclass_is_accelerated():
    layer = Plain(K, 5)
    expected = layer(features(), edges())
    lacis.patch()
    before = accelerated("GCNConv")
    assert torch.allclose(layer(features(), edges()), expected, atol=1e-5)
    assert accelerated("GCNConv") == before + 1


def test_submodules_and_parameters_may_be_replaced():
    layer = conv.GCNConv(K, 5)
    layer.lin = torch.nn.Sequential(torch.nn.Linear(K, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))
    gat = conv.GATConv(K, 4, heads=2)
    torch.nn.utils.parametrize.register_parametrization(gat, "att_src", torch.nn.Tanh())
    expected = [one(features(), edges()).detach() for one in (layer, gat)]
    lacis.patch()
    for one, right in zip((layer, gat), expected):
        assert torch.allclose(one(features(), edges()), right, atol=1e-5)


def test_module_hooks_are_called():
    layer, seen = conv.GCNConv(K, 5), []
    layer.register_forward_hook(lambda *args: seen.append("layer"))
    layer.lin.register_forward_hook(lambda *args: seen.append("lin"))
    lacis.patch()
    layer(features(), edges())
    assert seen == ["lin", "layer"]


@pytest.mark.parametrize("make, call, error", [
    (lambda: conv.GCNConv(K, 5), lambda m: m(features(), torch.tensor([[0, 99], [1, 2]])),
     (IndexError, RuntimeError)),
    (lambda: conv.SAGEConv(K, 5), lambda m: m(features(), torch.tensor([[0, -1], [1, 2]])),
     (IndexError, RuntimeError)),
    (lambda: conv.GCNConv(K, 5), lambda m: m((features(), features()), edges()), ValueError),
    (lambda: conv.SAGEConv(K, 5), lambda m: m(features(), edges(), size=(50, 49)), ValueError),
    (lambda: conv.GCNConv(K, 5), lambda m: m(features(k=3), edges()), RuntimeError),
    (lambda: conv.GATConv(K, 5), lambda m: m(features(), edges(), nonsense=1), TypeError)])
def test_errors_are_the_originals(make, call, error):
    layer = make()
    with pytest.raises(error) as expected:
        call(layer)
    lacis.patch()
    with pytest.raises(type(expected.value)) as found:
        call(layer)
    assert str(found.value) == str(expected.value)


def test_other_devices_and_types_fall_through():
    lacis.patch()
    layer = conv.SAGEConv(K, 5).to("meta")
    out = layer(features().to("meta"), edges().to("meta"))
    assert out.device.type == "meta"
    half = conv.SAGEConv(K, 5).half()
    assert half(features().half(), edges()).dtype is torch.float16
    assert "torch.float16 features" in why("SAGEConv")


def test_torch_func_and_forward_mode():
    layer = conv.GCNConv(K, 5)
    x, index = features(), edges()
    expected = torch.func.grad(lambda x: layer(x, index).sum())(x)
    lacis.patch()
    assert torch.allclose(torch.func.grad(lambda x: layer(x, index).sum())(x), expected, atol=1e-5)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        assert torch.autograd.forward_ad.unpack_dual(layer(dual, index)).tangent is not None


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("shape", [(40_000,), (5000, 8), (5000, 3, 5)])
def test_scatter(reduce, shape):
    index = torch.randint(0, 700, shape[:1])
    src = torch.randn(shape, dtype=torch.float64).relu()  # zeros tie
    grad = torch.randn((800, *shape[1:]), dtype=torch.float64)

    def run():
        x = src.clone().requires_grad_()
        y = utils.scatter(x, index, dim=0, dim_size=800, reduce=reduce)
        (y * grad).sum().backward()
        return y.detach(), x.grad

    expected = run()
    lacis.patch()
    before = accelerated("scatter")
    for found, right in zip(run(), expected):
        assert torch.allclose(found, right)
    assert accelerated("scatter") == before + 1


def test_scatter_can_be_differentiated_twice():
    index, src = torch.randint(0, 70, (5000,)), torch.randn(5000, 8, dtype=torch.float64)

    def run(reduce):
        x = src.clone().requires_grad_()
        y = utils.scatter(x.square(), index, dim_size=70, reduce=reduce).square().sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), x)[0]

    expected = run("sum"), run("mean")
    lacis.patch()
    assert torch.allclose(run("sum"), expected[0]) and torch.allclose(run("mean"), expected[1])


def test_softmax_and_segment():
    index = torch.randint(0, 700, (9000,))
    src = torch.randn(9000, 4, dtype=torch.float64)
    ptr = torch.tensor([0, 10, 10, 5000, 9000])

    def run():
        x = src.clone().requires_grad_()
        out = [utils.softmax(x, index), utils.softmax(x, index, num_nodes=1000),
               utils.segment(x, ptr, "sum"), utils.segment(x, ptr, "mean")]
        sum((y * y.detach().cos()).sum() for y in out).backward()
        return [*(y.detach() for y in out), x.grad]

    expected = run()
    lacis.patch()
    for found, right in zip(run(), expected):
        assert torch.allclose(found, right)
    assert accelerated("softmax") >= 2 and accelerated("segment") >= 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_coo])
def test_sparse_products_of_torch(layout, dtype):
    values = torch.rand(300, dtype=dtype)
    a = csr(edges(), N, values).to_dense().to_sparse(layout=layout)
    x = features(dtype=dtype)

    def run():
        leaf = x.clone().requires_grad_()
        out = [a @ leaf, torch.sparse.mm(a, leaf), torch.mm(a, leaf)]
        if layout is not torch.sparse_csc:
            out.append(torch.spmm(a, leaf))
        sum((y * y.detach()).sum() for y in out).backward()
        return [*(y.detach() for y in out), leaf.grad]

    expected = run()
    lacis.patch()
    before = accelerated("sparse @ dense")
    for found, right in zip(run(), expected):
        assert torch.allclose(found, right, rtol=1e-4, atol=1e-5)
    assert accelerated("sparse @ dense") == before + 1
    assert torch.allclose(a @ x[:, 0], (a.to_dense() @ x[:, 0]), atol=1e-4)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_reduced_products_of_torch(reduce):
    a = csr(edges(), N, torch.rand(300))
    x = features().relu()

    def run():
        leaf = x.clone().requires_grad_()
        y = torch.sparse.mm(a, leaf, reduce)
        (y * torch.arange(y.numel()).view(y.shape)).sum().backward()
        return y.detach(), leaf.grad

    expected = run()
    lacis.patch()
    found = run()
    assert torch.allclose(found[0], expected[0], atol=1e-5)
    # Which of equal maxima gets the gradient is not promised; their sum in a column is.
    assert torch.allclose(found[1].sum(0), expected[1].sum(0), rtol=1e-3, atol=1e-2)


def test_gradients_of_sparse_values_are_the_originals():
    values = torch.rand(300, requires_grad=True)
    index = edges()
    lacis.patch()
    a = torch.sparse_coo_tensor(index, values, (N, N))
    torch.sparse.mm(a, features()).sum().backward()
    assert values.grad is not None and values.grad.abs().sum() > 0


def test_a_pygcn_like_script():
    """Kipf's GCN in PyTorch: a layer of its own on `torch.spmm`, no torch_geometric."""
    a = csr(edges(), N).to_sparse_coo().coalesce()
    y = torch.randint(0, 4, (N,))

    def train():
        torch.manual_seed(0)
        w1, w2 = torch.randn(K, 16) * 0.1, torch.randn(16, 4) * 0.1
        w1.requires_grad_(), w2.requires_grad_()
        optimizer, losses = torch.optim.Adam([w1, w2], lr=0.01), []
        for _ in range(10):
            optimizer.zero_grad()
            h = torch.spmm(a, torch.mm(features(), w1)).relu()
            loss = torch.nn.functional.cross_entropy(torch.spmm(a, torch.mm(h, w2)), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return torch.tensor(losses)

    expected = train()
    lacis.patch()
    before = accelerated("torch.spmm")
    assert torch.allclose(train(), expected, atol=1e-5)
    assert accelerated("torch.spmm") == before + 20


def test_torch_sparse():
    torch_sparse = pytest.importorskip("torch_sparse")
    made = torch_sparse.SparseTensor.from_torch_sparse_csr_tensor(csr(edges(), N, torch.rand(300)))
    x = features()

    def run():
        leaf = x.clone().requires_grad_()
        out = [torch_sparse.matmul(made, leaf), made @ leaf, made.matmul(leaf, reduce="mean"),
               torch_sparse.matmul(made, leaf, reduce="max")]
        sum((y * y.detach()).sum() for y in out).backward()
        return [*(y.detach() for y in out), leaf.grad]

    expected = run()
    lacis.patch()
    for found, right in zip(run(), expected):
        assert torch.allclose(found, right, atol=1e-3, rtol=1e-4)


def test_mean_of_an_asymmetric_graph_has_the_right_gradient():
    """The transpose of a mean is A^T D^-1: iSpLib's cache divides by the wrong degrees."""
    index = torch.tensor([[0, 1, 2, 3, 0], [1, 1, 1, 2, 3]])
    layer = conv.SAGEConv(2, 2, root_weight=False, bias=False)
    x = features(4, 2).requires_grad_()
    layer(x, index).sum().backward()
    expected, x.grad = x.grad, None
    lacis.patch()
    layer(x, index).sum().backward()
    assert torch.allclose(x.grad, expected)


def test_report_measures_beside_the_original():
    lacis.patch()
    layer = conv.GCNConv(K, 5)
    layer(features(), edges())
    lacis.report(measure=True)
    layer(features(), edges())
    row = next(row for row in lacis.report().rows if row["name"] == "GCNConv")
    assert row["original_ms"] > 0 and row["largest_difference"] < 1e-4
    assert row["bytes_not_allocated"] >= 2 * 300 * 5 * 4
    assert "GCNConv" in repr(lacis.report())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_follow_torch_and_do_not_change_a_bit(threads):
    before = torch.get_num_threads()
    lacis.patch()
    n = 3000
    index, x = torch.randint(0, n, (2, 60_000)), features(n, 33)
    layer = conv.GATConv(33, 8, heads=4)
    torch.set_num_threads(1)
    expected = layer(x, index)
    torch.set_num_threads(threads)
    try:
        assert torch.equal(layer(x, index), expected)
    finally:
        torch.set_num_threads(before)


def test_forked_workers_have_threads_of_their_own():
    code = """
import os, torch, lacis
from torch_geometric.nn import GCNConv
lacis.patch()
torch.set_num_threads(2)
x, index = torch.randn(5000, 64), torch.randint(0, 5000, (2, 90000))
layer = GCNConv(64, 64)
with torch.no_grad():
    expected = lacis.report() and layer(x, index)
    child = os.fork()
    if child == 0:
        import signal
        signal.alarm(20)
        matrix = next(iter(lacis._cache._entries.values())).kept
        from lacis._inputs import normalised
        y = normalised(index, 5000, "source_to_target", True).product(x)
        os._exit(0 if y.shape == (5000, 64) else 1)
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_optimized_models_keep_products_and_results():
    lacis.patch()
    torch.manual_seed(0)
    index, x, y = edges(), features(), torch.randint(0, 4, (N,))
    kinds = {"gcn": lambda i, o: conv.GCNConv(i, o), "sage": lambda i, o: conv.SAGEConv(i, o),
             "gin": lambda i, o: conv.GINConv(torch.nn.Linear(i, o)),
             "graph": lambda i, o: conv.GraphConv(i, o)}
    for make in kinds.values():
        one = torch.nn.ModuleList([make(K, 30), make(30, 4)])
        two = copy.deepcopy(one)
        names = list(two.state_dict())
        assert lacis.optimize(two) is two and list(two.state_dict()) == names
        for model in (one, two):
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            model.losses = []
            for _ in range(6):
                optimizer.zero_grad()
                out = model[1](model[0](x, index).relu(), index)
                loss = torch.nn.functional.cross_entropy(out, y)
                loss.backward()
                optimizer.step()
                model.losses.append(loss.item())
        assert torch.allclose(torch.tensor(one.losses), torch.tensor(two.losses), atol=1e-4)
        copy.deepcopy(two)
        # New values of the features are seen.
        x.mul_(1.5)
        assert torch.allclose(one[0](x, index), two[0](x, index), atol=1e-2)


def test_optimize_works_without_patch():
    model = conv.GCNConv(K, 5)
    other = conv.GCNConv(K, 5)
    expected = model(features(), edges())
    lacis.optimize(model)
    before = accelerated("GCNConv")
    assert torch.allclose(model(features(), edges()), expected, atol=1e-5)
    other(features(), edges())
    assert accelerated("GCNConv") == before + 1
