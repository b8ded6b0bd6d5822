"""Every patched layer: outputs and all gradients as torch_geometric's own, whatever the input."""

import copy
import pickle
import warnings
from inspect import signature

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric")

import lacis
from graphs import csr, edges, features
from torch_geometric import nn
from torch_geometric.nn import conv

warnings.filterwarnings("ignore")
N, K = 50, 12
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11, torch.bfloat16: 6e-2}


# torch_geometric before 2.6 has none.
RESIDUAL = {"residual": True} if "residual" in signature(conv.GATConv.__init__).parameters else {}


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(K, 8), torch.nn.ReLU(), torch.nn.Linear(8, 7))


# name, how to make the layer, whether it takes weights, which sparse inputs it takes
LAYERS = {
    "gcn": lambda: conv.GCNConv(K, 7),
    "gcn improved": lambda: conv.GCNConv(K, 7, improved=True),
    "gcn cached": lambda: conv.GCNConv(K, 7, cached=True),
    "gcn no loops": lambda: conv.GCNConv(K, 7, add_self_loops=False),
    "gcn plain": lambda: conv.GCNConv(K, 7, normalize=False, bias=False),
    "sage mean": lambda: conv.SAGEConv(K, 7),
    "sage sum": lambda: conv.SAGEConv(K, 7, aggr="sum"),
    "sage max": lambda: conv.SAGEConv(K, 7, aggr="max"),
    "sage min": lambda: conv.SAGEConv(K, 7, aggr="min"),
    "sage project": lambda: conv.SAGEConv(K, 7, project=True, normalize=True),
    "sage no root": lambda: conv.SAGEConv(K, 7, root_weight=False),
    "gin": lambda: conv.GINConv(mlp()),
    "gin eps": lambda: conv.GINConv(mlp(), eps=0.3, train_eps=True),
    "graph sum": lambda: conv.GraphConv(K, 7),
    "graph mean": lambda: conv.GraphConv(K, 7, aggr="mean"),
    "graph max": lambda: conv.GraphConv(K, 7, aggr="max"),
    "sg": lambda: conv.SGConv(K, 7, K=2),
    "tag": lambda: conv.TAGConv(K, 7, K=2),
    "tag plain": lambda: conv.TAGConv(K, 7, K=2, normalize=False),
    "cheb": lambda: conv.ChebConv(K, 7, K=3),
    "cheb rw": lambda: conv.ChebConv(K, 7, K=2, normalization="rw"),
    "cheb none": lambda: conv.ChebConv(K, 7, K=2, normalization=None),
    "appnp": lambda: conv.APPNP(K=3, alpha=0.1),
    "gat": lambda: conv.GATConv(K, 5, heads=3),
    "gat mean": lambda: conv.GATConv(K, 7, heads=2, concat=False, **RESIDUAL),
    "gat no loops": lambda: conv.GATConv(K, 7, add_self_loops=False),
    "gatv2": lambda: conv.GATv2Conv(K, 5, heads=3),
    "gatv2 shared": lambda: conv.GATv2Conv(K, 5, heads=2, share_weights=True, concat=False),
    "transformer": lambda: conv.TransformerConv(K, 5, heads=3),
    "transformer beta": lambda: conv.TransformerConv(K, 5, heads=2, beta=True, concat=False),
    "transformer no root": lambda: conv.TransformerConv(K, 5, root_weight=False),
    "transformer no bias": lambda: conv.TransformerConv(K, 5, heads=2, bias=False),
    "transformer mean": lambda: conv.TransformerConv(K, 5, heads=2, concat=False),
}
SPARSE = [name for name in LAYERS if name.split()[0] in
          ("gcn", "sage", "gin", "graph", "sg", "tag", "appnp")]
WEIGHTED = [name for name in LAYERS if name.split()[0] in ("gcn", "graph", "sg", "tag", "appnp")
            and name not in ("graph mean",)]


def run(layer, x, *args, **kwargs):
    """Output, and gradients of the features, of given leaves and of all parameters."""
    x = x.clone().requires_grad_()
    leaves = [a for a in (*args, *kwargs.values())
              if isinstance(a, torch.Tensor) and a.layout == torch.strided and a.requires_grad]
    layer.zero_grad()
    for leaf in leaves:
        leaf.grad = None
    out = layer(x, *args, **kwargs)
    seed = torch.Generator().manual_seed(5)
    weights = torch.randn(out.shape, generator=seed, dtype=torch.float64).to(out.dtype)
    (out * weights).sum().backward()
    grads = [x.grad] + [leaf.grad.clone() for leaf in leaves] + [
        p.grad.clone() if p.grad is not None else None for p in layer.parameters()]
    return out.detach(), grads


def same(left, right, dtype):
    tolerance = TOLERANCE[dtype]
    for a, b in zip([left[0], *left[1]], [right[0], *right[1]]):
        assert (a is None) == (b is None)
        if a is None:
            continue
        assert a.dtype == b.dtype and a.shape == b.shape
        scale = max(1.0, float(b.abs().max())) if b.numel() else 1.0
        close = torch.allclose(a / scale, b / scale, atol=tolerance, rtol=tolerance,
                               equal_nan=True)
        assert close, float((a - b).abs().max())


def compare(name, x, *args, accelerated=True, **kwargs):
    torch.manual_seed(3)
    layer = LAYERS[name]().to(x.dtype)
    original = run(copy.deepcopy(layer), x, *args, **kwargs)
    with lacis.patched():
        before = calls()
        own = run(layer, x, *args, **kwargs)
        if accelerated:
            assert calls() == before + 1, lacis.report()
    same(own, original, x.dtype)
    # What depends on a cached graph is right the second time too.
    with lacis.patched():
        same(run(layer, x, *args, **kwargs), original, x.dtype)


NAMES = {type(make()).__name__ for make in LAYERS.values()}


def calls():
    return sum(row["accelerated"] for row in lacis.report().rows if row["name"] in NAMES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", LAYERS)
def test_edge_index(name, dtype):
    # A maximum of rounded numbers has other ties.
    if dtype is torch.bfloat16 and name.split()[-1] in ("max", "min"):
        pytest.skip("ties of bf16 maxima depend on rounding")
    compare(name, features(dtype=dtype), edges())


@pytest.mark.parametrize("name", LAYERS)
def test_edge_index_from_a_transposed_list(name):
    compare(name, features(dtype=torch.float64), edges().t().contiguous().t())


@pytest.mark.parametrize("name", LAYERS)
def test_int32_edge_index(name):
    """As the original with int64: with int32 torch's own gradients are wrong, or it fails."""
    torch.manual_seed(3)
    layer = LAYERS[name]()
    original = run(copy.deepcopy(layer), features(), edges())
    if name.startswith("cheb"):
        return  # the Laplacian is the original's
    with lacis.patched():
        same(run(layer, features(), edges(dtype=torch.int32)), original, torch.float32)


@pytest.mark.parametrize("name", LAYERS)
def test_features_that_are_not_contiguous(name):
    wide = features(k=2 * K)
    compare(name, wide[:, ::2], edges())
    compare(name, features(k=N, n=K).t(), edges())


@pytest.mark.parametrize("name", LAYERS)
def test_no_edges(name):
    compare(name, features(), torch.empty(2, 0, dtype=torch.int64))


@pytest.mark.parametrize("name", [n for n in LAYERS if "cheb" not in n])
def test_target_to_source(name):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    layer.flow = "target_to_source"
    original = run(copy.deepcopy(layer), features(), edges())
    with lacis.patched():
        same(run(layer, features(), edges()), original, torch.float32)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", WEIGHTED)
def test_edge_weights(name, grad):
    if grad and name == "gcn cached":
        pytest.skip("what a layer keeps of learnt weights has a gradient once, in the original too")
    weight = torch.rand(300, dtype=torch.float64) + 0.1
    accelerated = not (grad and name == "graph max")
    compare(name, features(dtype=torch.float64), edges(), weight.requires_grad_(grad),
            accelerated=accelerated)


@pytest.mark.parametrize("layout", ["csr", "coo", "csc", "sparse_tensor"])
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_inputs(name, layout):
    matrix = csr(edges(), N)
    values = matrix.values().clone()
    if layout == "sparse_tensor":
        torch_sparse = pytest.importorskip("torch_sparse")
        matrix = torch_sparse.SparseTensor.from_torch_sparse_csr_tensor(matrix)
    elif layout == "coo":
        matrix = matrix.to_sparse_coo()
    elif layout == "csc":
        matrix = matrix.to_sparse_csc()
    layer = LAYERS[name]()
    try:
        run(copy.deepcopy(layer), features(), matrix)
    except Exception as error:
        with lacis.patched(), pytest.raises(type(error)):
            run(layer, features(), matrix)
        return
    compare(name, features(), matrix, accelerated=layout in ("csr", "sparse_tensor"))
    if layout == "csr":
        weighted = torch.sparse_csr_tensor(matrix.crow_indices(), matrix.col_indices(),
                                           values + torch.rand(values.shape), (N, N))
        compare(name, features(), weighted)


@pytest.mark.parametrize("name", ["gat", "gatv2", "transformer"])
def test_attention_over_a_sparse_tensor(name):
    torch_sparse = pytest.importorskip("torch_sparse")
    made = torch_sparse.SparseTensor.from_torch_sparse_csr_tensor(csr(edges(), N), has_value=False)
    compare(name, features(), made)


@pytest.mark.parametrize("name", list(LAYERS))
def test_edge_index_class(name):
    made = pyg.EdgeIndex(edges(), sparse_size=(N, N))
    layer = LAYERS[name]()
    original = run(copy.deepcopy(layer), features(), made)
    with lacis.patched():
        same(run(layer, features(), made), original, torch.float32)
        by_column, _ = made.sort_by("col")
    original = run(copy.deepcopy(layer), features(), by_column)
    with lacis.patched():
        same(run(layer, features(), by_column), original, torch.float32)


@pytest.mark.parametrize("make", [
    lambda: conv.SAGEConv((K, 9), 7), lambda: conv.SAGEConv((K, 9), 7, aggr="max"),
    lambda: conv.GraphConv((K, 9), 7), lambda: conv.GATv2Conv((K, 9), 4, 2, add_self_loops=False),
    lambda: conv.TransformerConv((K, 9), 4, heads=2),
    lambda: conv.GATConv((K, 9), 4, heads=2, add_self_loops=False)])
def test_bipartite(make):
    index = torch.stack([torch.randint(0, 50, (200,)), torch.randint(0, 20, (200,))])
    layer = make()
    source, target = features(), features(20, 9)

    def out(layer):
        x = source.clone().requires_grad_(), target.clone().requires_grad_()
        layer.zero_grad()
        y = layer(x, index)
        y.square().sum().backward()
        return y.detach(), [t.grad for t in x] + [p.grad.clone() for p in layer.parameters()]

    original = out(copy.deepcopy(layer))
    with lacis.patched():
        before = calls()
        same(out(layer), original, torch.float32)
        assert calls() == before + 1


def test_gcn2():
    layer = conv.GCN2Conv(K, alpha=0.1, theta=0.5, layer=2)
    two = conv.GCN2Conv(K, alpha=0.1, shared_weights=False)
    for one in (layer, two):
        x, first = features(), features(seed=9)
        original = run(copy.deepcopy(one), x, first, edges())
        with lacis.patched():
            same(run(one, x, first, edges()), original, torch.float32)


@pytest.mark.parametrize("name", ["gat", "gatv2", "transformer"])
@pytest.mark.parametrize("grad", [False, True])
def test_edge_features(name, grad):
    torch.manual_seed(0)
    attr = torch.randn(300, 4, dtype=torch.float64, requires_grad=grad)
    kinds = {"gat": conv.GATConv, "gatv2": conv.GATv2Conv, "transformer": conv.TransformerConv}
    layer = kinds[name](K, 5, heads=3, edge_dim=4).double()
    original = run(copy.deepcopy(layer), features(dtype=torch.float64), edges(), attr)
    with lacis.patched():
        before = calls()
        same(run(layer, features(dtype=torch.float64), edges(), attr), original, torch.float64)
        assert calls() == before + 1


@pytest.mark.parametrize("name", ["gat", "gatv2", "transformer", "gcn", "sage mean", "gin"])
def test_gradcheck(name):
    torch.manual_seed(0)
    layer = LAYERS[name]().double()
    if name == "gin":
        layer = conv.GINConv(torch.nn.Linear(K, 3)).double()
    index, x = edges(12, 40), features(12, dtype=torch.float64).requires_grad_()
    with lacis.patched():
        assert torch.autograd.gradcheck(lambda x: layer(x, index), (x,))


def test_gradcheck_of_edge_weights_through_the_normalisation():
    layer = conv.GCNConv(K, 3).double()
    index, x = edges(12, 40), features(12, dtype=torch.float64).requires_grad_()
    # Of repeated loops the original counts one and gives the gradient to all.
    index = index[:, index[0] != index[1]]
    weight = (torch.rand(index.size(1), dtype=torch.float64) + 0.5).requires_grad_()
    with lacis.patched():
        assert torch.autograd.gradcheck(lambda x, w: layer(x, index, w), (x, weight))


@pytest.mark.parametrize("name", ["gat", "gatv2", "transformer"])
def test_dropout_comes_from_torchs_generator(name):
    layer = LAYERS[name]()
    layer.dropout = 0.5
    index, x = edges(), features()
    with lacis.patched():
        torch.manual_seed(1)
        first = run(layer, x, index)
        torch.manual_seed(1)
        again = run(layer, x, index)
        other = run(layer, x, index)
    assert torch.equal(first[0], again[0]) and not torch.equal(first[0], other[0])
    same(first, again, torch.float32)
    # On average nothing changes, and without training nothing is dropped.
    layer.eval()
    exact = run(copy.deepcopy(layer), x, index)
    with lacis.patched():
        same(run(layer, x, index), exact, torch.float32)
        layer.train()
        many = torch.stack([layer(x, index).detach() for _ in range(400)]).mean(0)
    assert torch.allclose(many, exact[0], atol=0.35)


def test_appnp_drops_the_same_weights_as_the_original():
    layer = conv.APPNP(K=3, alpha=0.2, dropout=0.4)
    torch.manual_seed(4)
    original = run(copy.deepcopy(layer), features(), edges())
    with lacis.patched():
        torch.manual_seed(4)
        same(run(layer, features(), edges()), original, torch.float32)


def test_models_of_any_age_are_patched(tmp_path):
    made_before = nn.GCN(K, 16, 2, 5)
    pickled = pickle.dumps(made_before)
    x, index = features(), edges()
    expected = made_before(x, index).detach()
    lacis.patch()
    torch.save(made_before, tmp_path / "model.pt")
    for model in (made_before, pickle.loads(pickled), copy.deepcopy(made_before),
                  torch.load(tmp_path / "model.pt", weights_only=False)):
        before = calls()
        assert torch.allclose(model(x, index), expected, atol=1e-5)
        assert calls() == before + 2
    lacis.unpatch()
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.allclose(loaded(x, index), expected, atol=1e-6)


def test_a_model_saved_while_patched_names_nothing_of_lacis():
    with lacis.patched():
        model = nn.GCN(K, 16, 2, 5)
        model(features(), edges())
        assert b"lacis" not in pickle.dumps(model)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", ["gcn", "sage max", "gat", "graph sum"])
def test_without_gradients(name, mode):
    layer = LAYERS[name]()
    expected = layer(features(), edges()).detach()
    with lacis.patched(), mode():
        out = layer(features(), edges())
        index = edges()
        assert torch.allclose(layer(features(), index), expected, atol=1e-5)
    assert torch.allclose(out, expected, atol=1e-5) and not out.requires_grad


@pytest.mark.parametrize("name", ["gcn", "sage mean", "gin", "gat", "gatv2", "transformer"])
def test_autocast(name):
    layer = LAYERS[name]()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = layer(features(), edges())
    with lacis.patched(), torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(features(), edges())
    assert out.dtype == expected.dtype
    assert torch.allclose(out.float(), expected.float(), atol=8e-2, rtol=5e-2)


def test_second_derivatives_are_right_or_refused():
    x, index = features(dtype=torch.float64).requires_grad_(), edges()
    layer = conv.GCNConv(K, 3).double()

    def penalty():
        y = layer(x, index).tanh().sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), x)[0]

    expected = penalty()
    lacis.patch()
    assert torch.allclose(penalty(), expected)
    layer = conv.GATConv(K, 3).double()
    with pytest.raises(RuntimeError, match="twice|differentiate"):
        penalty()


@pytest.mark.parametrize("name", ["gcn", "gat", "sage mean"])
def test_any_subset_of_gradients(name):
    layer = LAYERS[name]()
    for frozen in range(len(list(layer.parameters()))):
        one, two = copy.deepcopy(layer), copy.deepcopy(layer)
        for model in (one, two):
            list(model.parameters())[frozen].requires_grad_(False)
        expected = run(one, features(), edges())
        with lacis.patched():
            same(run(two, features(), edges()), expected, torch.float32)
            two(features(), edges()).sum().backward()


@pytest.mark.parametrize("name", ["gcn", "gat", "sage mean", "gin"])
def test_compile_as_one_graph(name):
    layer = LAYERS[name]()
    expected = layer(features(), edges())
    if torch.__version__ < (2, 6):
        try:
            torch.compile(layer, fullgraph=True, backend="aot_eager")(features(), edges())
        except torch._dynamo.exc.Unsupported:
            pytest.skip("this torch does not compile the original as one graph")
        torch._dynamo.reset()
    with lacis.patched():
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        out = compiled(features(), edges())
        out.sum().backward()
    assert torch.allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("heads, channels",
                         [(8, 2), (3, 2), (17, 2), (1, 2), (2, 1), (5, 4), (3, 8)])
@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("kind", [conv.GATConv, conv.GATv2Conv, conv.TransformerConv])
def test_heads_and_channels(kind, heads, channels, edge_dim):
    """Heads lie in vectors in different ways; 5,000 edges are several slices."""
    torch.manual_seed(0)
    layer, n = kind(K, channels, heads=heads, edge_dim=edge_dim), 700
    given = [edges(n, 5000)] + ([] if edge_dim is None else [torch.randn(5000, edge_dim)])
    original = run(copy.deepcopy(layer), features(n), *given)
    with lacis.patched():
        before = calls()
        same(run(layer, features(n), *given), original, torch.float32)
        assert calls() == before + 1
