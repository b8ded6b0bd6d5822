"""The networks of torch_geometric that `accuracy.py` trains, and what makes them train quickly.

The layers, their initialisation and their formulas are torch_geometric's. On a GPU they run as they
are. On a CPU two things that change no number but rounding save most of the time: the adjacency is a `SparseTensor` where a layer takes one,
and the first layer multiplies features, which are sparse and of which nothing is dropped, by its
weights before it gathers. `checked` compares that with the layer itself.
"""
import torch
import torch.nn.functional as F
from torch_geometric.nn import (APPNP, BatchNorm, ChebConv, GATConv, GATv2Conv, GCN2Conv, GCNConv,
                                GINConv, SAGEConv, SGConv, TAGConv)
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.models import MLP
from torch_geometric.nn.pool import global_add_pool

DROPOUT = 0.5
# Layers that make the same of a `SparseTensor` as of a list of edges.
BY_MATRIX = (GCNConv, SAGEConv, GINConv, GCN2Conv, TAGConv)


class Product(torch.autograd.Function):
    """`x·w` of a sparse matrix that needs no gradient; `x` is the pair of it and its transpose."""

    @staticmethod
    def forward(ctx, w, x):
        ctx.x = x
        return x[0] @ w

    @staticmethod
    def backward(ctx, gradient):
        return ctx.x[1] @ gradient, None


class Fixed:
    """A matrix that is multiplied by many weights."""

    def __init__(self, x):
        dense = x.to_dense() if x.layout != torch.strided else x
        self.dense = dense if (dense != 0).float().mean() > 0.05 else None
        if self.dense is None:
            self.pair = (dense.to_sparse_csr(), dense.t().contiguous().to_sparse_csr())

    def times(self, linear):
        """Its product with a linear layer's weights."""
        w = linear.weight.t()
        return self.dense @ w if self.dense is not None else Product.apply(w, self.pair)

    def through(self, linear):
        """What a linear layer makes of it."""
        y, b = self.times(linear), linear.bias
        return y if b is None else y + b


class Plain:
    """The same without shortcuts."""

    def __init__(self, x):
        self.x = x

    def through(self, linear):
        return linear(self.x)


class Graph:
    """Edges in both of torch_geometric's forms, and features that are multiplied by many weights."""

    def __init__(self, x, edges):
        self.x, self.edges, n = x, edges, x.shape[0]
        self.quick = not x.is_cuda
        if self.quick:
            from torch_sparse import SparseTensor
            self.adj = SparseTensor(row=edges[1], col=edges[0], sparse_sizes=(n, n))
            self.fixed, self.made = Fixed(x), {}
        else:
            self.adj, self.fixed = edges, Plain(x)

    def normed(self, loops):
        """`D^-1/2·A·D^-1/2`, with loops or without."""
        if loops not in self.made:
            self.made[loops] = gcn_norm(self.adj, add_self_loops=loops)
        return self.made[loops]


def first(conv, graph):
    """What the first layer computes, features multiplied by weights before they are gathered."""
    x = graph.fixed
    if not graph.quick:
        return conv(graph.x, graph.edges)
    if isinstance(conv, SAGEConv):
        own = x.through(conv.lin_r)
        return graph.adj.matmul(x.times(conv.lin_l), reduce="mean") + conv.lin_l.bias + own
    if isinstance(conv, GINConv):
        y = x.times(conv.nn)
        return graph.adj.matmul(y) + y + conv.nn.bias
    if isinstance(conv, TAGConv):
        n, y = graph.normed(False), 0
        for lin in reversed(list(conv.lins)):
            y = x.times(lin) + (n.matmul(y) if torch.is_tensor(y) else 0)
        return y + conv.bias
    if isinstance(conv, ChebConv):
        # L = -N where the largest eigenvalue is taken to be 2; T_2 = 2·L² - 1.
        n, (w0, w1, w2) = graph.normed(False), conv.lins
        twice = x.times(w2)
        second = 2 * n.matmul(n.matmul(twice)) - twice
        return x.times(w0) - n.matmul(x.times(w1)) + second + conv.bias
    if isinstance(conv, SGConv):
        n, y = graph.normed(True), x.times(conv.lin)
        for _ in range(conv.K):
            y = n.matmul(y)
        return y + conv.lin.bias
    # Those that multiply by their weights first are given a linear layer that takes what is fixed.
    return with_linear(conv, x, graph)


class Through(torch.nn.Module):
    """A linear layer whose input is known."""

    def __init__(self, linear, fixed):
        super().__init__()
        self.__dict__["pair"] = (linear, fixed)

    def forward(self, _):
        linear, fixed = self.pair
        return fixed.through(linear)


def with_linear(conv, fixed, graph):
    names = [name for name in ("lin", "lin_l", "lin_r") if getattr(conv, name, None) is not None]
    kept = {name: conv._modules[name] for name in names}
    for name, linear in kept.items():
        conv._modules[name] = Through(linear, fixed)
    try:
        return conv(graph.x, edges_of(conv, graph))
    finally:
        conv._modules.update(kept)


def edges_of(conv, graph):
    """A `SparseTensor` where the layer makes the same of it."""
    return graph.adj if graph.quick and isinstance(conv, BY_MATRIX) else graph.edges


class Stack(torch.nn.Module):
    def __init__(self, convs, function=F.relu):
        super().__init__()
        self.convs, self.function = torch.nn.ModuleList(convs), function

    def forward(self, graph):
        x = first(self.convs[0], graph)
        for conv in self.convs[1:]:
            x = F.dropout(self.function(x), DROPOUT, self.training)
            x = conv(x, edges_of(conv, graph))
        return x


class Linears(torch.nn.Module):
    def __init__(self, a, b, hidden):
        super().__init__()
        self.lins = torch.nn.ModuleList([torch.nn.Linear(a, hidden), torch.nn.Linear(hidden, b)])

    def forward(self, graph):
        x = graph.fixed.through(self.lins[0])
        return self.lins[1](F.dropout(x.relu(), DROPOUT, self.training))


class Predictor(Linears):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.steps = APPNP(10, 0.1, cached=True)

    def forward(self, graph):
        return self.steps(super().forward(graph), graph.adj)


class Deep(Linears):
    def __init__(self, a, b, hidden):
        super().__init__(a, b, hidden)
        self.convs = torch.nn.ModuleList([GCN2Conv(hidden, 0.1, 0.5, l + 1, cached=True) for l in range(2)])

    def forward(self, graph):
        start = x = graph.fixed.through(self.lins[0]).relu()
        for conv in self.convs:
            x = conv(F.dropout(x, DROPOUT, self.training), start, graph.adj).relu()
        return self.lins[1](F.dropout(x, DROPOUT, self.training))


class Pooled(torch.nn.Module):
    """GIN for graphs: five layers of two linear ones with norms, a sum, a linear layer."""

    def __init__(self, a, b, hidden, layers=5):
        super().__init__()
        widths = [a] + [hidden] * layers
        mlp = lambda i: MLP([widths[i], hidden, hidden], norm="batch_norm")
        self.convs = torch.nn.ModuleList([GINConv(mlp(i)) for i in range(layers)])
        self.norms = torch.nn.ModuleList([BatchNorm(hidden) for _ in range(layers)])
        self.lin = torch.nn.Linear(hidden, b)

    def forward(self, batch):
        x = batch.x
        for conv, norm in zip(self.convs, self.norms):
            x = F.dropout(norm(conv(x, batch.edge_index)).relu(), DROPOUT, self.training)
        return self.lin(global_add_pool(x, batch.batch, batch.num_graphs))


def net_of(model, a, b, hidden):
    two = lambda layer: Stack([layer(a, hidden), layer(hidden, b)])
    attend = lambda layer: Stack([layer(a, hidden // 8, heads=8, dropout=DROPOUT),
                                  layer(hidden, b, heads=1, dropout=DROPOUT)], F.elu)
    return {
        "gcn": lambda: two(lambda i, o: GCNConv(i, o, cached=True)), "sage": lambda: two(SAGEConv),
        "gin": lambda: two(lambda i, o: GINConv(torch.nn.Linear(i, o))),
        "gat": lambda: attend(GATConv), "gatv2": lambda: attend(GATv2Conv),
        "sgc": lambda: Stack([SGConv(a, b, K=2)]), "tagcn": lambda: two(TAGConv),
        "cheb": lambda: two(lambda i, o: ChebConv(i, o, K=3)),
        "appnp": lambda: Predictor(a, b, hidden), "gcn2": lambda: Deep(a, b, hidden),
        "mlp": lambda: Linears(a, b, hidden),
    }[model]()


@torch.no_grad()
def checked(model, graph):
    """Whether the first layer, computed the quick way, is what the layer itself computes."""
    if not graph.quick:
        return
    part = Graph(graph.x[:, :64].contiguous(), graph.edges)
    net = net_of(model, part.x.shape[1], 5, 16).eval()
    if not hasattr(net, "convs") or isinstance(net, Linears):
        return
    own = net.convs[0](part.x, part.edges)
    off = (first(net.convs[0], part) - own).abs().max() / own.abs().max()
    assert off < 1e-5, f"{model}: the quick first layer is off by {off}"
