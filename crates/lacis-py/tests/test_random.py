"""Programs drawn at random: layers, options, graphs, inputs and what is done with them. The same
numbers come out patched, planned and without Lacis."""

import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import lacis
from graphs import csr
from torch import nn
from torch_geometric import EdgeIndex
from torch_geometric.nn import conv

N, K, OUT = 30, 6, 4
PROGRAMS = 40
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10, torch.bfloat16: 0.05}


def flags(draw, *names):
    return {name: draw.random() < 0.5 for name in names}


def network(draw):
    return draw.choice([
        lambda: nn.Linear(K, OUT), lambda: nn.Sequential(nn.Linear(K, OUT), nn.ELU(inplace=True)),
        lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(K, OUT)), nn.Identity])


def gcn(draw):
    how = flags(draw, "bias", "improved", "normalize")
    return lambda: conv.GCNConv(K, OUT, add_self_loops=how["normalize"], **how)


def sage(draw):
    how = flags(draw, "bias", "normalize", "root_weight", "project")
    aggr = draw.choice(["mean", "sum", "max", "min", "std"])
    return lambda: conv.SAGEConv(K, OUT, aggr, **how)


def gin(draw):
    made, eps, learned = network(draw), draw.choice([0.0, 0.5]), draw.random() < 0.3
    aggr = draw.choice(["add", "mean", "max"])
    return lambda: conv.GINConv(made(), eps, learned, aggr=aggr)


def attention(draw):
    kind = draw.choice([conv.GATConv, conv.GATv2Conv, conv.TransformerConv])
    how, heads = flags(draw, "concat", "bias"), draw.choice([1, 3])
    return lambda: kind(K, OUT, heads=heads, **how)


def graph(draw):
    aggr = draw.choice(["add", "mean", "max"])
    return lambda: conv.GraphConv(K, OUT, aggr)


def hops(draw):
    k, bias = draw.choice([1, 2, 3]), draw.random() < 0.5
    kind = draw.choice([conv.SGConv, conv.TAGConv, conv.ChebConv])
    return lambda: kind(K, OUT, K=k, bias=bias)


def propagation(draw):
    k, alpha = draw.choice([1, 3]), draw.choice([0.1, 0.5])
    return lambda: conv.APPNP(k, alpha, **flags(random.Random(k), "add_self_loops"))


class Program:
    """Everything about a run that is drawn."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.seed = seed
        make = draw.choice([gcn, sage, gin, attention, graph, hops, propagation])
        self.layer = make(draw)
        self.weighted = make in (gcn, hops, propagation) and draw.random() < 0.4
        self.learned = self.weighted and draw.random() < 0.5
        self.dtype = draw.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
        self.edges = draw.choice([0, 1, 60, 200])
        self.kind = "tensor" if self.weighted else draw.choice(
            ["tensor", "tensor", "int32", "transposed", "EdgeIndex", "csr"])
        self.values = draw.choice(["any", "ties", "not together", "expanded"])
        self.needs_grad = draw.random() < 0.6
        self.calls, self.step = draw.choice([1, 2, 4]), draw.random() < 0.5

    def inputs(self):
        made = torch.Generator().manual_seed(self.seed)
        index = torch.randint(0, N - 2, (2, self.edges), generator=made)
        x = torch.randn(N, K, generator=made, dtype=torch.float64).to(self.dtype)
        weight = torch.rand(self.edges, generator=made, dtype=torch.float64).to(self.dtype)
        x = {"any": x, "ties": x.round(), "not together": x.t().contiguous().t(),
             "expanded": x[:1].expand(N, K)}[self.values]
        index = {"int32": index.int, "transposed": lambda: index.t().contiguous().t(),
                 "EdgeIndex": lambda: EdgeIndex(index, sparse_size=(N, N)),
                 "csr": lambda: csr(index, N, dtype=self.dtype)}.get(self.kind, lambda: index)()
        x = x.detach().requires_grad_(self.needs_grad)
        return x, index, weight.requires_grad_(self.learned)

    def run(self, planned):
        torch.manual_seed(self.seed)
        layer = self.layer().to(self.dtype)
        if planned:
            lacis.optimize(layer)
        x, index, weight = self.inputs()
        given = (x, index, weight) if self.weighted else (x, index)
        shown = []
        for _ in range(self.calls):
            y = layer(*given)
            shown.append(y)
            if y.requires_grad:
                y.square().mean().backward()
            with torch.no_grad():
                for one in layer.parameters() if self.step else ():
                    one.mul_(0.9)
        shown += [one.grad for one in (x, weight, *layer.parameters())]
        return [None if one is None else one.detach() for one in shown]


def outcome(program, planned):
    """What a program shows, or the kind of error that it ends with."""
    try:
        return program.run(planned)
    except (RuntimeError, ValueError) as error:  # torch has no such kernel
        return type(error)


@pytest.mark.parametrize("start", range(0, PROGRAMS, 10))
def test_programs(start):
    ran = 0
    for seed in range(start, start + 10):
        program = Program(seed)
        lacis.unpatch()
        expected = outcome(program, False)
        if isinstance(expected, type):
            continue
        ran += 1
        for patched, planned in ((True, False), (False, True), (True, True)):
            lacis.patch() if patched else lacis.unpatch()
            for found, right in zip(outcome(program, planned), expected, strict=True):
                assert (found is None) == (right is None), vars(program)
                if found is not None and found.numel():
                    close = TOLERANCE[found.dtype] * (1 + float(right.abs().max()))
                    assert found.dtype is right.dtype
                    assert torch.allclose(found, right, rtol=0, atol=close), vars(program)
    assert ran > 4
