"""The other side of `lacis bench ops --peers`: computes the same problem with another library.

One JSON object a line on stdin, one back on stdout; see peers.rs. The graph lies in a folder as
.npy files; dense operands are made here, by the same function of their place as in Lacis
(crates/lacis/src/ops/numbers.rs).
"""
import json, os, sys, time, warnings

warnings.filterwarnings("ignore")
PACKAGES = {"torch": "torch", "torch+thp": "torch", "torch_scatter": "torch_scatter", "torch_sparse": "torch_sparse", "pyg": "torch_geometric", "scipy": "scipy"}
INSTALL = {
    "numpy": "pip install numpy",
    "scipy": "pip install scipy",
    "torch": "pip install torch",
    "torch_geometric": "pip install torch torch_geometric",
    "torch_scatter": "pip install torch && pip install --no-build-isolation torch-scatter",
    "torch_sparse": "pip install torch && pip install --no-build-isolation torch-scatter torch-sparse",
}
#: Messages that are stored one per entry must fit in this much memory.
MOST_BYTES = 8 << 30


class Missing(Exception):
    pass


def load(package):
    try:
        return __import__(package)
    except ImportError as error:
        raise Missing(f"{package} is not installed ({error}); try: {INSTALL[package.split('.')[0]]}")


def mix(h):
    h = (h ^ (h >> 16)) * np.uint32(0x7FEB352D)
    h = (h ^ (h >> 15)) * np.uint32(0x846CA68B)
    return h ^ (h >> 16)


def numbers(name, n, k=None):
    """The matrix of a name, or a vector without k: float32 in [-1, 1)."""
    seed = 0x811C9DC5
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x01000193) & 0xFFFFFFFF
    cols = np.arange(1 if k is None else k, dtype=np.uint32)
    out = np.empty((n, len(cols)), dtype=np.float32)
    for start in range(0, n, 65536):
        rows = mix(np.arange(start, min(start + 65536, n), dtype=np.uint32) + np.uint32(seed))
        bits = mix(rows[:, None] + cols[None, :]) >> np.uint32(8)
        out[start : start + len(rows)] = bits.astype(np.float32) / np.float32(8388608) - np.float32(1)
    return out if k is not None else out[:, 0]


class Graph:
    """The adjacency: row i holds the sources of node i's edges."""

    def __init__(self, folder):
        read = lambda name: np.load(os.path.join(folder, name + ".npy"))
        self.indptr, self.indices = read("indptr"), read("indices")
        self.n, self.m = (int(s) for s in read("shape"))
        self.own = read("values") if os.path.exists(os.path.join(folder, "values.npy")) else None
        self.nnz = len(self.indices)

    def values(self, task):
        """The values of the entries, or None: all ones."""
        if not task["weighted"]:
            return None
        return self.own if self.own is not None else numbers("values", self.nnz)

    def rows(self):
        """The row of every entry."""
        return np.repeat(np.arange(self.n, dtype=np.int64), np.diff(self.indptr))


class Torch:
    """What all torch-based engines share."""

    def __init__(self):
        self.torch = load("torch")
        self.torch.set_num_threads(STATE["threads"])
        self.torch.set_grad_enabled(False)

    def dtype(self, task):
        return {"f32": self.torch.float32, "f64": self.torch.float64, "bf16": self.torch.bfloat16}[task["dtype"]]

    def dense(self, name, n, k, task):
        made = numbers(name, n, k)
        if name == "x" and task["sparsity"] > 0:
            made[numbers("thin", n, k) < np.float32(2 * task["sparsity"] - 1)] = 0
        return self.torch.from_numpy(made).to(self.dtype(task))

    def index(self, array):
        return self.torch.from_numpy(array.astype(np.int64))

    def csr(self, graph, task, width="int32"):
        """A CSR tensor; MKL reads four-byte indices."""
        values = graph.values(task)
        values = np.ones(graph.nnz, np.float32) if values is None else values
        arrays = [self.torch.from_numpy(a.astype(width)) for a in (graph.indptr, graph.indices)]
        return self.torch.sparse_csr_tensor(*arrays, self.torch.from_numpy(values).to(self.dtype(task)), (graph.n, graph.m))


def torch_spmm(graph, task):
    t = Torch()
    x = t.dense("x", graph.m, task["k"], task)
    reduce = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}.get(task["reduce"])
    if reduce is None:
        raise Missing("torch.sparse.mm has no product of messages")
    if reduce == "sum":
        a = t.csr(graph, task)
        return "torch.sparse CSR @ dense", lambda: a @ x
    a = t.csr(graph, task, "int64")
    return f"torch.sparse.mm({reduce})", lambda: t.torch.sparse.mm(a, x, reduce)


def torch_sparse_spmm(graph, task):
    t, sparse = Torch(), load("torch_sparse")
    x, values = t.dense("x", graph.m, task["k"], task), graph.values(task)
    values = None if values is None else t.torch.from_numpy(values).to(t.dtype(task))
    a = sparse.SparseTensor(
        rowptr=t.index(graph.indptr), col=t.index(graph.indices), value=values,
        sparse_sizes=(graph.n, graph.m), is_sorted=True, trust_data=True,
    )
    return "torch_sparse.matmul", lambda: sparse.matmul(a, x, task["reduce"])


def pyg_spmm(graph, task):
    t, _ = Torch(), load("torch_geometric")
    from torch_geometric.utils import scatter

    if graph.nnz * task["k"] * 4 > MOST_BYTES:
        raise Missing("a message for every edge would take more than 8 GiB")
    x, values = t.dense("x", graph.m, task["k"], task), graph.values(task)
    row, col = t.index(graph.rows()), t.index(graph.indices)
    weight = None if values is None else t.torch.from_numpy(values).to(t.dtype(task))[:, None]

    def run():
        messages = x.index_select(0, col)
        if weight is not None:
            messages = messages * weight
        return scatter(messages, row, 0, graph.n, task["reduce"])

    return "torch_geometric.utils.scatter(x[col])", run


def scipy_spmm(graph, task):
    sparse = load("scipy.sparse").sparse
    if task["reduce"] != "sum" or task["dtype"] == "bf16":
        raise Missing("scipy.sparse adds f32 or f64 rows, nothing else")
    dtype = np.float64 if task["dtype"] == "f64" else np.float32
    values = graph.values(task)
    values = np.ones(graph.nnz, dtype) if values is None else values.astype(dtype)
    a = sparse.csr_matrix((values, graph.indices.astype(np.int32), graph.indptr), shape=(graph.n, graph.m))
    x = numbers("x", graph.m, task["k"]).astype(dtype)
    return "scipy.sparse CSR @ dense", lambda: a @ x


def torch_matmul(graph, task):
    t, k = Torch(), task["k"]
    n = task["n"] or k
    x = t.dense("x", graph.n, k, task)
    if task["axis"] == 1:
        z = t.dense("w", graph.n, n, task)
        return "torch x.T @ z", lambda: x.T @ z
    w = t.dense("w", k, n, task)
    if task["op"] == "matmul":
        return "torch x @ w", lambda: x @ w
    bias = t.torch.from_numpy(numbers("bias", n)).to(t.dtype(task))
    return "torch.addmm", lambda: t.torch.addmm(bias, x, w)


def torch_sddmm(graph, task):
    t, k = Torch(), task["k"]
    if graph.nnz * k * 4 > MOST_BYTES:
        raise Missing("two rows for every edge would take more than 8 GiB")
    u, v = t.dense("u", graph.n, k, task), t.dense("v", graph.m, k, task)
    row, col = t.index(graph.rows()), t.index(graph.indices)
    return "torch (u[row] * v[col]).sum(1)", lambda: (u.index_select(0, row) * v.index_select(0, col)).sum(1)


def pyg_softmax(graph, task):
    t, _ = Torch(), load("torch_geometric")
    from torch_geometric.utils import softmax

    scores, ptr = t.dense("scores", graph.nnz, task["k"], task), t.index(graph.indptr)
    row = t.index(graph.rows())
    return "torch_geometric.utils.softmax", lambda: softmax(scores, row, ptr, graph.n)


def pyg_attention(graph, task):
    """What GATConv computes between its linear layer and its bias; along columns, its gradient."""
    t, _ = Torch(), load("torch_geometric")
    from torch_geometric.utils import scatter, softmax

    k, kept = task["k"], 4 if task["axis"] else 1
    if graph.nnz * k * 4 * kept > MOST_BYTES:
        raise Missing("messages for every edge would take more than 8 GiB")
    heads = next((heads for heads in (8, 4, 2) if k % heads == 0 and k // heads >= 4), 1)
    x = t.dense("x", graph.m, k, task).view(-1, heads, k // heads)
    target, source = (t.dense(name, heads, k // heads, task) for name in ("target", "source"))
    row, col = t.index(graph.rows()), t.index(graph.indices)

    def run():
        alpha = (x * target).sum(-1).index_select(0, row) + (x * source).sum(-1).index_select(0, col)
        alpha = softmax(t.torch.nn.functional.leaky_relu(alpha, 0.2), row, num_nodes=graph.n)
        return scatter(x.index_select(0, col) * alpha[..., None], row, 0, graph.n, "sum").view(-1, k)

    if task["axis"] == 0:
        return "torch_geometric softmax and scatter, as GATConv", run
    given = [x.requires_grad_(), target.requires_grad_(), source.requires_grad_()]
    with t.torch.enable_grad():
        y = run()
    gradient = t.dense("gradient", graph.n, k, task)

    def back():
        return t.torch.autograd.grad(y, given, gradient, retain_graph=True)[0].view(-1, k)

    return "torch_geometric softmax and scatter, as GATConv, its gradient", back


def torch_select_reduce(graph, task):
    """A message for every edge, then one row for every target."""
    t, k, how = Torch(), task["k"], task["reduce"]
    if graph.nnz * k * 4 > MOST_BYTES:
        raise Missing("a message for every edge would take more than 8 GiB")
    x, values = t.dense("x", graph.m, k, task), graph.values(task)
    row, col = t.index(graph.rows()), t.index(graph.indices)
    weight = None if values is None else t.torch.from_numpy(values).to(t.dtype(task))[:, None]
    reduce = {"mean": "mean", "max": "amax", "min": "amin", "mul": "prod"}.get(how)

    def run():
        messages = x.index_select(0, col)
        if weight is not None:
            messages = messages * weight
        if reduce is None:
            return x.new_zeros((graph.n, k)).index_add_(0, row, messages)
        out = x.new_ones((graph.n, k)) if reduce == "prod" else x.new_zeros((graph.n, k))
        return out.scatter_reduce_(0, row.view(-1, 1).expand_as(messages), messages, reduce, include_self=False)

    return f"torch.index_select, {'index_add' if reduce is None else 'scatter_reduce'}", run


def torch_gather(graph, task):
    t, k, axis = Torch(), task["k"], task["axis"]
    if graph.nnz * k * 8 > MOST_BYTES:
        raise Missing("an eight-byte index for every element would take more than 8 GiB")
    shape, out = ((graph.m, k), (graph.nnz, k)) if axis == 0 else ((k, graph.m), (k, graph.nnz))
    x, col = t.dense("x", *shape, task), t.index(graph.indices)
    places = t.torch.arange(out[0])[:, None] + t.torch.arange(out[1])[None, :]
    index = col[places % graph.nnz]
    del places
    return "torch.gather", lambda: x.gather(axis, index)


def edges(graph, task):
    """The list that is sorted or coalesced: rows, columns, values (or None), in a made-up order."""
    entries = np.arange(graph.nnz)
    if task["op"] == "coalesce":
        entries = np.tile(entries, task["n"]) if task["n"] else np.concatenate([entries, entries[::4]])
    entries = entries[np.argsort(numbers("order", len(entries)), kind="stable")]
    values = graph.values(task)
    if values is None and task["op"] == "coalesce":
        values = np.ones(graph.nnz, np.float32)
    return graph.rows()[entries], graph.indices[entries].astype(np.int64), None if values is None else values[entries]


def single(task):
    if task["dtype"] != "f32":
        raise Missing("values of sparse matrices are compared in f32")


def torch_spgemm(graph, task):
    single(task)
    a = Torch().csr(graph, task)
    return "torch.sparse CSR @ CSR", lambda: a @ a


def torch_transpose(graph, task):
    single(task)
    a = Torch().csr(graph, task, "int64")
    return "torch.sparse CSR .t().to_sparse_csr()", lambda: a.t().to_sparse_csr()


def torch_sort(graph, task):
    single(task)
    t = Torch()
    row, col, values = edges(graph, task)
    row, col = t.index(row), t.index(col)
    values = None if values is None else t.torch.from_numpy(values)

    def run():
        order = (row * graph.m + col).sort(stable=True).indices
        return row[order], col[order], None if values is None else values[order]

    return "torch.sort of row * n + col", run


def pyg_sort(graph, task):
    single(task)
    t, _ = Torch(), load("torch_geometric")
    from torch_geometric import utils

    row, col, values = edges(graph, task)
    index = t.torch.stack([t.index(row), t.index(col)])
    values = None if values is None else t.torch.from_numpy(values)
    sort = utils.sort_edge_index if task["op"] == "sort" else utils.coalesce

    def run():
        if values is None:
            return (*sort(index, num_nodes=max(graph.n, graph.m)), None)
        found, kept = sort(index, values, num_nodes=max(graph.n, graph.m))
        return (*found, kept)

    return f"torch_geometric.utils.{sort.__name__}", run


def torch_coalesce(graph, task):
    single(task)
    t = Torch()
    row, col, values = edges(graph, task)
    index, values = t.torch.stack([t.index(row), t.index(col)]), t.torch.from_numpy(values)
    make = lambda: t.torch.sparse_coo_tensor(index, values, (graph.n, graph.m), check_invariants=False)
    return "torch.sparse COO .coalesce()", lambda: make().coalesce()


def torch_sparse_matrices(graph, task):
    """What torch_sparse has for lists of edges."""
    single(task)
    t, sparse = Torch(), load("torch_sparse")
    if task["op"] == "coalesce":
        row, col, values = edges(graph, task)
        index, values = t.torch.stack([t.index(row), t.index(col)]), t.torch.from_numpy(values)
        run = lambda: sparse.coalesce(index, values, graph.n, graph.m)
        return "torch_sparse.coalesce", lambda: (lambda found: (*found[0], found[1]))(run())
    values = graph.values(task)
    values = t.torch.from_numpy(np.ones(graph.nnz, np.float32) if values is None else values)
    index = t.torch.stack([t.index(graph.rows()), t.index(graph.indices)])
    if task["op"] == "transpose":
        run = lambda: sparse.transpose(index, values, graph.n, graph.m)
    else:
        run = lambda: sparse.spspmm(index, values, index, values, graph.n, graph.m, graph.m)
    name = "transpose" if task["op"] == "transpose" else "spspmm"
    return f"torch_sparse.{name}", lambda: (lambda found: (*found[0], found[1]))(run())


def scipy_matrices(graph, task):
    single(task)
    sparse, op = load("scipy.sparse").sparse, task["op"]
    if op in ("sort", "coalesce"):
        row, col, values = edges(graph, task)
        values = np.ones(len(row), np.float32) if values is None else values
        row, col = row.astype(np.int32), col.astype(np.int32)
        return "scipy.sparse COO .tocsr()", lambda: sparse.coo_matrix((values, (row, col)), shape=(graph.n, graph.m)).tocsr()
    values = graph.values(task)
    values = np.ones(graph.nnz, np.float32) if values is None else values
    a = sparse.csr_matrix((values, graph.indices.astype(np.int32), graph.indptr), shape=(graph.n, graph.m))
    if op == "transpose":
        return "scipy.sparse CSR .T.tocsr()", lambda: a.T.tocsr()
    return "scipy.sparse CSR @ CSR", lambda: a @ a


def torch_select(graph, task):
    t, axis = Torch(), task["axis"]
    shape = (graph.m, task["k"]) if axis == 0 else (task["k"], graph.m)
    x, col = t.dense("x", *shape, task), t.index(graph.indices)
    blocks, k = task["blocks"], task["k"]
    if blocks > 1:
        cube, first = x.view(blocks, -1, k), col[: len(col) // blocks]
        return "torch.index_select", lambda: cube.index_select(1, first).view(-1, k)
    return "torch.index_select", lambda: x.index_select(axis, col)


def items(t, graph, task):
    """The operand of a reduction by index, its index, and the shape of the result."""
    axis, k = task["axis"], task["k"]
    sorted_by = task["op"].startswith("segment")
    index, n = (graph.rows(), graph.n) if sorted_by else (graph.indices, graph.m)
    shape = (graph.nnz, k) if axis == 0 else (k, graph.nnz)
    return t.dense("x", *shape, task), t.index(index), (n, k) if axis == 0 else (k, n)


def cubes(task, x, index, begin):
    """Operands with three axes, where the same index applies to blocks: the axis, and they."""
    blocks, k = task["blocks"], task["k"]
    if blocks == 1:
        return task["axis"], x, index, begin
    return 1, x.view(blocks, -1, k), index[: len(index) // blocks], begin.view(blocks, -1, k)


def torch_index_add(graph, task):
    t = Torch()
    x, index, shape = items(t, graph, task)
    begin = t.dense("begin", *shape, task)
    axis, x, index, begin = cubes(task, x, index, begin)
    return "torch.index_add", lambda: begin.index_add(axis, index, x).view(shape)


def torch_scatter(graph, task):
    t = Torch()
    x, index, shape = items(t, graph, task)
    how = task["op"].split("_")[1]
    axis, x, index, out = cubes(task, x, index, x.new_empty(shape))
    wanted = tuple(out.shape)
    if how in ("add", "sum"):
        return "torch.index_add", lambda: x.new_zeros(wanted).index_add_(axis, index, x).view(shape)
    reduce = {"mean": "mean", "max": "amax", "min": "amin", "mul": "prod"}[how]
    wide = index.view([-1 if at == axis else 1 for at in range(x.dim())]).expand_as(x)

    def run():
        out = x.new_ones(wanted) if reduce == "prod" else x.new_zeros(wanted)
        return out.scatter_reduce_(axis, wide, x, reduce, include_self=False).view(shape)

    return f"torch.scatter_reduce({reduce})", run


def pyg_scatter(graph, task):
    t, _ = Torch(), load("torch_geometric")
    from torch_geometric import utils

    x, index, shape = items(t, graph, task)
    how = {"add": "sum"}.get(task["op"].split("_")[1], task["op"].split("_")[1])
    if task["op"].startswith("segment") and task["axis"] == 0:
        ptr = t.index(graph.indptr)
        return "torch_geometric.utils.segment", lambda: utils.segment(x, ptr, how)
    axis = task["axis"]
    return "torch_geometric.utils.scatter", lambda: utils.scatter(x, index, axis, shape[axis], how)


def torch_scatter_reduce(graph, task):
    """Reductions by torch_scatter: by pointers where segments are in order, else by index."""
    t, library = Torch(), load("torch_scatter")
    x, index, shape = items(t, graph, task)
    how = {"add": "sum"}.get(task["op"].split("_")[1], task["op"].split("_")[1])
    if task["op"].startswith("segment") and how != "mul" and task["blocks"] == 1:
        ptr = t.index(graph.indptr)
        ptr = ptr if task["axis"] == 0 else ptr.expand(task["k"], -1)
        return "torch_scatter.segment_csr", lambda: library.segment_csr(x, ptr, reduce=how)
    axis, x, index, out = cubes(task, x, index, x.new_empty(shape))
    length = out.shape[axis]
    return "torch_scatter.scatter", lambda: library.scatter(x, index, axis, None, length, how).view(shape)


REDUCTIONS = [f"scatter_{how}" for how in ("add", "mean", "max", "min", "mul")]
REDUCTIONS += [f"segment_{how}" for how in ("sum", "mean", "max", "min", "mul")]
MATRICES = ("spgemm", "transpose", "sort", "coalesce")
ENGINES = {
    ("spmm", "torch"): torch_spmm,
    ("spmm", "torch_sparse"): torch_sparse_spmm,
    ("spmm", "pyg"): pyg_spmm,
    ("spmm", "scipy"): scipy_spmm,
    ("matmul", "torch"): torch_matmul,
    ("addmm", "torch"): torch_matmul,
    ("sddmm", "torch"): torch_sddmm,
    ("edge_softmax", "pyg"): pyg_softmax,
    ("attention", "pyg"): pyg_attention,
    ("index_select", "torch"): torch_select,
    ("index_add", "torch"): torch_index_add,
    ("gather", "torch"): torch_gather,
    ("select_reduce", "torch"): torch_select_reduce,
    ("select_reduce", "torch_sparse"): torch_sparse_spmm,
    ("select_reduce", "pyg"): pyg_spmm,
    ("spgemm", "torch"): torch_spgemm,
    ("transpose", "torch"): torch_transpose,
    ("sort", "torch"): torch_sort,
    ("coalesce", "torch"): torch_coalesce,
    ("sort", "pyg"): pyg_sort,
    ("coalesce", "pyg"): pyg_sort,
}
ENGINES.update({(op, "scipy"): scipy_matrices for op in MATRICES})
ENGINES.update({(op, "torch_sparse"): torch_sparse_matrices for op in MATRICES if op != "sort"})
ENGINES.update({(op, "torch"): torch_scatter for op in REDUCTIONS})
ENGINES.update({(op, "torch_scatter"): torch_scatter_reduce for op in REDUCTIONS})
ENGINES.update({(op, "pyg"): pyg_scatter for op in REDUCTIONS if op != "segment_mul"})


def arrays(result, n):
    """The arrays of a sparse matrix: row pointers, columns, values."""
    if hasattr(result, "indptr"):
        return result.indptr, result.indices, result.data
    if not isinstance(result, tuple):
        if str(result.layout) == "torch.sparse_csr":
            found = result.crow_indices(), result.col_indices(), result.values()
            return tuple(array.numpy() for array in found)
        result = (*result.indices(), result.values())
    row, col, values = (None if array is None else array.numpy() for array in result)
    assert (np.diff(row) >= 0).all(), "rows are not in order"
    values = np.ones(len(row), np.float32) if values is None else values
    return np.searchsorted(row, np.arange(n + 1)), col, values


def marks(result, order):
    """What rows of a sparse matrix are compared by (crates/lacis/src/ops/matrices.rs)."""
    graph = STATE["graph"]
    n, m = (graph.m, graph.n) if order["op"] == "transpose" else (graph.n, graph.m)
    indptr, indices, values = arrays(result, n)
    multiples, out = numbers("marks", m).astype(np.float64), []
    for i in order["rows"]:
        span = slice(int(indptr[i]), int(indptr[i + 1]))
        cols, v = indices[span], values[span].astype(np.float64)
        if order["op"] == "spgemm":
            # A product whose columns are in another order is the same matrix.
            by = np.argsort(cols, kind="stable")
            cols, v = cols[by], v[by]
        p, place = multiples[cols], np.arange(len(cols)) % 97 + 1
        out.append([float(len(cols)), p.sum(), (v * p).sum(), (v * p * place).sum()])
    return out


def shown(result, order):
    """Some rows of a result as lists."""
    rows = order["rows"]
    if order["op"] in MATRICES:
        return marks(result, order)
    if hasattr(result, "is_sparse"):
        result = result[rows].double().numpy()
    else:
        result = np.asarray(result[rows], dtype=np.float64)
    result = result.reshape(len(rows), -1)
    return [[None if x != x else x for x in row] for row in result.tolist()]


def hello(order):
    STATE["threads"] = order["threads"]
    STATE["graph"] = Graph(order["folder"])
    from importlib import metadata

    versions = {"python": sys.version.split()[0]}
    for package in ("numpy", "scipy", "torch", "torch_geometric", "torch_scatter", "torch_sparse"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return {"versions": versions}


def graph(order):
    STATE["slots"].clear()
    STATE["graph"] = Graph(order["folder"])
    return {}


def prepare(order):
    make = ENGINES.get((order["op"], order["engine"]))
    if make is None:
        raise Missing(f"{order['engine']} has no {order['op']} to compare with")
    STATE["slots"].pop(order["slot"], None)
    kernel, run = make(STATE["graph"], order)
    result = run()
    rows = shown(result, order)
    del result
    begun = time.perf_counter()
    run()
    seconds = time.perf_counter() - begun
    STATE["slots"][order["slot"]] = run
    return {"kernel": kernel, "seconds": seconds, "rows": rows}


def run(order):
    function, repeats = STATE["slots"][order["slot"]], order["repeats"]
    begun = time.perf_counter()
    while time.perf_counter() - begun < order["warm_s"]:
        function()
    begun = time.perf_counter()
    for _ in range(repeats):
        function()
    return {"seconds": (time.perf_counter() - begun) / repeats}


STATE = {"slots": {}, "graph": None, "threads": 1}


def main():
    # What libraries print must not get between our lines.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    global np
    for line in sys.stdin:
        order = json.loads(line)
        try:
            np = load("numpy")
            answer = {"hello": hello, "graph": graph, "prepare": prepare, "run": run}[order["do"]](order)
        except Missing as why:
            answer = {"error": str(why)}
        except (Exception, MemoryError) as error:
            answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
