"""The other side of `lacis bench ops --peers`: computes the same problem with another library.

One JSON object a line on stdin, one back on stdout; see peers.rs. The graph lies in a folder as
.npy files; dense operands are made here, by the same function of their place as in Lacis
(crates/lacis/src/ops/numbers.rs).
"""
import json, os, sys, time, warnings

warnings.filterwarnings("ignore")
PACKAGES = {"torch": "torch", "torch+thp": "torch", "torch_sparse": "torch_sparse", "pyg": "torch_geometric", "scipy": "scipy"}
INSTALL = {
    "numpy": "pip install numpy",
    "scipy": "pip install scipy",
    "torch": "pip install torch",
    "torch_geometric": "pip install torch torch_geometric",
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
        return self.torch.from_numpy(numbers(name, n, k)).to(self.dtype(task))

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


ENGINES = {
    ("spmm", "torch"): torch_spmm,
    ("spmm", "torch_sparse"): torch_sparse_spmm,
    ("spmm", "pyg"): pyg_spmm,
    ("spmm", "scipy"): scipy_spmm,
}


def shown(result, rows):
    """Some rows of a result as lists."""
    if hasattr(result, "is_sparse"):
        result = (result.to_dense() if result.layout.__str__() != "torch.strided" else result)
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
    for package in ("numpy", "scipy", "torch", "torch_geometric", "torch_sparse"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return {"versions": versions}


def prepare(order):
    make = ENGINES.get((order["op"], order["engine"]))
    if make is None:
        raise Missing(f"{order['engine']} has no {order['op']} to compare with")
    STATE["slots"].pop(order["slot"], None)
    kernel, run = make(STATE["graph"], order)
    result = run()
    rows = shown(result, order["rows"])
    del result
    begun = time.perf_counter()
    run()
    seconds = time.perf_counter() - begun
    STATE["slots"][order["slot"]] = run
    return {"kernel": kernel, "seconds": seconds, "rows": rows}


def run(order):
    function, repeats = STATE["slots"][order["slot"]], order["repeats"]
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
            answer = {"hello": hello, "prepare": prepare, "run": run}[order["do"]](order)
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
