"""Planned layers: the planner's order, products kept, and backward products from some pairs."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import lacis
from lacis import _optimize, _plans
from torch_geometric.nn import conv

N = 400


def graph(n=N, e=8000, seed=0):
    """A symmetric graph with a few nodes of many neighbours."""
    made = torch.Generator().manual_seed(seed)
    half = (torch.rand(2, e // 2, generator=made) ** 2 * n).long()
    return torch.cat([half, half.flip(0)], dim=1)


def kinds():
    """Pairs of layers by name, from 24 columns over 32 to 4."""
    def pair(make):
        return torch.nn.ModuleList([make(24, 32), make(32, 4)])

    return {"gcn": lambda: pair(conv.GCNConv), "sage": lambda: pair(conv.SAGEConv),
            "graph": lambda: pair(conv.GraphConv),
            "gin": lambda: pair(lambda i, o: conv.GINConv(torch.nn.Linear(i, o))),
            "sg": lambda: pair(lambda i, o: conv.SGConv(i, o, K=2)),
            "tag": lambda: pair(lambda i, o: conv.TAGConv(i, o, K=2)),
            "cheb": lambda: pair(lambda i, o: conv.ChebConv(i, o, K=3))}


def train(model, epochs=6, x=None, index=None, lr=0.01):
    """Losses of some epochs, and the gradients of the last."""
    generator = torch.Generator().manual_seed(1)
    # Small, since some layers add up hundreds of neighbours.
    x = 0.05 * torch.randn(N, 24, generator=generator) if x is None else x
    y = torch.randint(0, 4, (N,), generator=generator)
    index = graph() if index is None else index
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=lr), []
    for _ in range(epochs):
        optimizer.zero_grad()
        out = model[1](model[0](x, index).relu(), index)
        loss = torch.nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("name", kinds())
def test_a_planned_model_learns_the_same(name):
    torch.manual_seed(0)
    one = kinds()[name]()
    two = lacis.optimize(copy.deepcopy(one))
    expected, found = train(one), train(two)
    torch.testing.assert_close(torch.tensor(found[0]), torch.tensor(expected[0]), rtol=1e-3,
                               atol=1e-3)
    for own, theirs in zip(found[1], expected[1]):
        torch.testing.assert_close(own, theirs, rtol=2e-2, atol=2e-3)


def plan(inputs, outputs, kind="gcn", goes_on=False, stays=False):
    flags = (True, kind == "sage", True, goes_on, stays)
    sizes = (100_000, 100_000, 2_000_000)
    return _plans._planned((kind, sizes, (inputs, outputs), 1), flags, None)


@pytest.mark.parametrize("kind", ["gcn", "sage", "gin", "graph"])
def test_the_planner_gathers_where_it_is_narrow(kind):
    assert not plan(512, 16, kind)["gathers_first"]
    assert plan(16, 512, kind)["gathers_first"]
    wide = plan(512, 16, kind, goes_on=True)
    assert not wide["gathers_first"] and wide["narrow_back"]
    narrow = plan(16, 512, kind, goes_on=True)
    assert narrow["gathers_first"] and not narrow["narrow_back"]


def test_what_stays_the_same_is_gathered_once():
    assert plan(512, 16, stays=True)["gathers_first"]
    chosen = plan(512, 16, stays=True)
    costs = [one["predicted_ms"] for one in chosen["candidates"] if one["predicted_ms"]]
    assert len(costs) > 1 and "A" in chosen["formula"] and chosen["kept"]


def test_the_report_has_plans():
    lacis.clear_caches()
    model = lacis.optimize(kinds()["gcn"]())
    train(model, epochs=3)
    report = lacis.report()
    shown = [plan for plan in report.plans if plan["kind"] == "gcn"]
    assert {(plan["inputs"], plan["outputs"]) for plan in shown} == {(24, 32), (32, 4)}
    assert any(plan["kept"] for plan in shown) and all(plan["calls"] for plan in shown)
    assert "A·X kept" in repr(report) and "ms predicted" in repr(report)


@pytest.mark.parametrize("policy", ["rsc", "adaptive"])
@pytest.mark.parametrize("name", kinds())
def test_a_budget_of_one_gives_the_same_bits(name, policy):
    torch.manual_seed(0)
    one = lacis.optimize(kinds()[name]())
    two = lacis.optimize(copy.deepcopy(one), approx=policy, approx_budget=1.0)
    expected, found = train(one, 5), train(two, 5)
    assert found[0] == expected[0]
    assert all(torch.equal(a, b) for a, b in zip(found[1], expected[1]))


@pytest.mark.parametrize("policy", ["rsc", "adaptive"])
@pytest.mark.parametrize("name", kinds())
def test_smaller_budgets_stay_near(name, policy):
    torch.manual_seed(0)
    one = lacis.optimize(kinds()[name]())
    # Labels are random, so the largest pairs are further off than rsc's own bound.
    two = lacis.optimize(copy.deepcopy(one), approx=policy, approx_budget=0.5, approx_bound=1,
                         approx_force=True)
    expected, found = train(one, 15, lr=0.002), train(two, 15, lr=0.002)
    assert found[0] != expected[0]
    torch.testing.assert_close(torch.tensor(found[0]), torch.tensor(expected[0]), rtol=0.1,
                               atol=0.05)
    (report,) = [one for one in lacis.report().approximations if one["layers"]][-1:]
    kept = [layer["kept"] for layer in report["layers"] if layer["kept"] is not None]
    assert report["policy"] == policy and kept and all(0 < share < 1 for share in kept)
    if policy == "adaptive":
        assert all(refresh["kept"] <= 1 for layer in report["layers"]
                   for refresh in layer["refreshes"])
    assert "entries kept, error" in repr(lacis.report())


def test_everything_is_exact_from_the_switch_on():
    torch.manual_seed(0)
    one = lacis.optimize(kinds()["gcn"]())
    two = lacis.optimize(copy.deepcopy(one), approx="adaptive", approx_budget=0.3,
                         approx_force=True, approx_switch=0.0, epochs=5)
    expected, found = train(one, 5), train(two, 5)
    assert found[0] == expected[0]


def test_sampling_that_cannot_pay_is_left_off():
    torch.manual_seed(0)
    one = lacis.optimize(kinds()["gcn"]())
    two = lacis.optimize(copy.deepcopy(one), approx="adaptive", approx_budget=0.5)
    sparse = graph(e=60)  # a product that is mostly writing its result
    assert train(one, 4, index=sparse)[0] == train(two, 4, index=sparse)[0]
    (report,) = [one for one in lacis.report().approximations if one["left_off"]][-1:]
    assert report["left_off"] and "cannot pay" in repr(lacis.report())


def test_batches_are_sampled_each_with_its_own_graph():
    torch.manual_seed(0)
    one = lacis.optimize(kinds()["sage"]())
    two = lacis.optimize(copy.deepcopy(one), approx="adaptive", approx_budget=0.6,
                         approx_force=True)
    for seed in range(6):
        index, x = graph(seed=seed), torch.randn(N, 24)
        expected, found = train(copy.deepcopy(one), 1, x, index), train(two, 1, x, index)
        two.load_state_dict(one.state_dict())
        assert found[0] == expected[0]  # forward products are exact
        own, theirs = (torch.cat([g.flatten() for g in run[1]]) for run in (found, expected))
        assert (own - theirs).norm() < 0.5 * theirs.norm()
        assert torch.equal(own, theirs) == (seed == 0)  # which is looked at and computed exactly


def test_sampled_models_can_be_pickled_and_copied():
    model = lacis.optimize(kinds()["gcn"](), approx="adaptive", approx_budget=0.4,
                           approx_force=True)
    train(model, 3)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert list(other.state_dict()) == list(model.state_dict())
        assert _optimize.is_optimized(other[0])
        train(other, 2)
    assert b"lacis." not in pickle.dumps(model)


@pytest.mark.parametrize("wrong", [{"approx": "best"}, {"approx": "rsc", "approx_budget": 0},
                                   {"approx": "adaptive", "approx_switch": 2, "epochs": 5},
                                   {"approx": "adaptive", "approx_error": -1},
                                   {"approx": "rsc", "approx_bound": 0}])
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError):
        lacis.optimize(conv.GCNConv(3, 4), **wrong)


def test_second_derivatives_are_exact():
    model = lacis.optimize(conv.GCNConv(24, 4).double(), approx="adaptive", approx_budget=0.2,
                           approx_force=True)
    plain = copy.deepcopy(model)
    del plain.__dict__[_optimize.MARK]
    x = torch.randn(N, 24, dtype=torch.float64, requires_grad=True)

    def penalty(layer):
        (g,) = torch.autograd.grad(layer(x, graph()).tanh().sum(), x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), x)[0]

    torch.testing.assert_close(penalty(model), penalty(plain))
