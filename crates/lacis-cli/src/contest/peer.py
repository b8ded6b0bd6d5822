"""The other side of `lacis bench train`: the same network, trained by torch_geometric.

One JSON object a line on stdin, one back on stdout. Graph, features, classes and training nodes lie
in a folder as .npy files, the first weights as .safetensors; see contest/sides.rs.
"""
import json, os, struct, sys, time, warnings

warnings.filterwarnings("ignore")
INSTALL = "pip install torch torch_geometric"
INSTALL_SPARSE = "pip install --no-build-isolation torch-scatter torch-sparse"


class Missing(Exception):
    pass


def load(package, install):
    try:
        return __import__(package)
    except ImportError as error:
        raise Missing(f"{package} is not installed ({error}); try: {install}")


def status(name):
    """Bytes of a line of /proc/self/status."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def write(path, text):
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        pass


def limit_memory():
    """What does not fit is an error of this process, not the end of another one."""
    import resource

    write("/proc/self/oom_score_adj", "1000")
    with open("/proc/meminfo") as lines:
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    limit = status("VmSize") + int(0.92 * free)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def read_weights(path):
    import numpy as np
    import torch

    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack("<Q", data[:8])
    head = json.loads(data[8 : 8 + size])
    head.pop("__metadata__", None)
    tensors = {}
    for name, info in head.items():
        begin, end = (8 + size + at for at in info["data_offsets"])
        array = np.frombuffer(data[begin:end], dtype=np.float32).reshape(info["shape"])
        tensors[name] = torch.tensor(array)
    return tensors


def networks():
    """Networks whose weights have the names that Lacis gives them."""
    import torch
    import torch.nn.functional as F
    from torch_geometric import nn

    class Stack(torch.nn.Module):
        def __init__(self, convs, function):
            super().__init__()
            self.convs, self.function = torch.nn.ModuleList(convs), function

        def forward(self, x, graph):
            for conv in self.convs[:-1]:
                x = self.function(conv(x, graph))
            return self.convs[-1](x, graph)

    class Linears(torch.nn.Module):
        def __init__(self, sizes):
            super().__init__()
            self.lins = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

        def forward(self, x, graph=None):
            for lin in self.lins[:-1]:
                x = lin(x).relu()
            return self.lins[-1](x)

    class Predictor(Linears):
        def __init__(self, sizes):
            super().__init__(sizes)
            self.spread = nn.APPNP(10, 0.1, cached=True)

        def forward(self, x, graph):
            return self.spread(super().forward(x), graph)

    class Deep(Linears):
        def __init__(self, order):
            super().__init__([order["features"], order["hidden"], order["classes"]])
            convs = [nn.GCN2Conv(order["hidden"], 0.1, 0.5, layer + 1, cached=True) for layer in range(order["layers"])]
            self.convs = torch.nn.ModuleList(convs)

        def forward(self, x, graph):
            first = x = self.lins[0](x).relu()
            for conv in self.convs:
                x = conv(x, first, graph).relu()
            return self.lins[1](x)

    def stack(layer, order):
        sizes = [order["features"]] + [order["hidden"]] * (order["layers"] - 1) + [order["classes"]]
        return Stack([layer(a, b) for a, b in zip(sizes, sizes[1:])], F.relu)

    def heads(layer, order):
        each, last = order["hidden"] // order["heads"], order["layers"] - 1
        sizes = [order["features"]] + [order["hidden"]] * last
        convs = [layer(a, each, heads=order["heads"]) for a in sizes[:-1]]
        return Stack(convs + [layer(sizes[-1], order["classes"], heads=1)], F.elu)

    return {
        "gcn": lambda o: stack(lambda a, b: nn.GCNConv(a, b, cached=True), o),
        "sage": lambda o: stack(nn.SAGEConv, o),
        "gin": lambda o: stack(lambda a, b: nn.GINConv(Linears([a, b])), o),
        "gat": lambda o: heads(nn.GATConv, o),
        "gatv2": lambda o: heads(nn.GATv2Conv, o),
        "sgc": lambda o: nn.SGConv(o["features"], o["classes"], K=o["layers"], cached=True),
        "tagcn": lambda o: stack(nn.TAGConv, o),
        "cheb": lambda o: stack(lambda a, b: nn.ChebConv(a, b, K=3), o),
        "appnp": lambda o: Predictor([o["features"]] + [o["hidden"]] * (o["layers"] - 1) + [o["classes"]]),
        "gcn2": Deep,
        "gatedgcn": lambda o: stack(nn.ResGatedGraphConv, o),
        "mlp": lambda o: Linears([o["features"]] + [o["hidden"]] * (o["layers"] - 1) + [o["classes"]]),
    }


def graph_of(peer, arrays):
    """The graph as this mode wants it: rows are targets."""
    import numpy as np
    import torch

    pointers, columns = (torch.from_numpy(arrays(name).astype(np.int64)) for name in ("indptr", "indices"))
    n, m = (int(size) for size in arrays("shape"))
    values = torch.from_numpy(arrays("values")) if arrays("values") is not None else None
    if peer == "csr":
        values = torch.ones(columns.numel()) if values is None else values
        return torch.sparse_csr_tensor(pointers, columns, values, (n, m))
    if peer == "sparse_tensor":
        made = load("torch_sparse", INSTALL_SPARSE).SparseTensor(
            rowptr=pointers, col=columns, value=values, sparse_sizes=(n, m), is_sorted=True, trust_data=True
        )
        return made.fill_cache_()
    if values is not None:
        raise Missing("edges have weights, which not every layer takes beside edge_index")
    rows = torch.repeat_interleave(torch.arange(n), pointers.diff())
    return torch.stack([columns, rows])


class Training:
    def __init__(self, order):
        import numpy as np

        torch = load("torch", INSTALL)
        load("torch_geometric", INSTALL)
        torch.set_num_threads(order["threads"])
        if order["peer"] == "plugin":
            load("lacis", "pip install lacis").patch()
        make = networks().get(order["model"])
        if make is None:
            raise Missing(f"{order['model']} is not compared with torch_geometric")

        def arrays(name):
            path = os.path.join(order["folder"], name + ".npy")
            return np.load(path) if os.path.exists(path) else None

        self.graph = graph_of(order["peer"], arrays)
        self.x, self.y = torch.from_numpy(arrays("x")), torch.from_numpy(arrays("y")).long()
        train = arrays("train")
        self.train = None if len(train) == len(self.x) else torch.from_numpy(train.astype(np.int64))
        if self.train is not None:
            self.y = self.y[self.train]
        limit_memory()
        # The peak of reading is forgotten; what is counted is above graph and features.
        write("/proc/self/clear_refs", "5")
        self.base = status("VmRSS")
        torch.manual_seed(0)
        self.net = make({**order, "features": self.x.shape[1]})
        state, given = self.net.state_dict(), read_weights(order["weights"])
        self.net.load_state_dict({k: v.reshape(state[k].shape) for k, v in given.items()})
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=order["lr"])
        self.torch = torch
        self.passes, self.compared = order["passes"], order["compared_epochs"]
        if self.passes == "forward":
            self.net.eval()

    def results(self):
        """The results of all nodes; the loss they would have is for comparing, and not timed."""
        with self.torch.no_grad():
            begun = time.perf_counter()
            out = self.net(self.x, self.graph)
            seconds = time.perf_counter() - begun
            if self.compared == 0:
                return seconds, float("nan")
            self.compared -= 1
            out = out if self.train is None else out[self.train]
            return seconds, self.torch.nn.functional.cross_entropy(out, self.y).item()

    def epoch(self):
        if self.passes == "forward":
            return self.results()
        begun = time.perf_counter()
        self.optimizer.zero_grad()
        out = self.net(self.x, self.graph)
        out = out if self.train is None else out[self.train]
        loss = self.torch.nn.functional.cross_entropy(out, self.y)
        loss.backward()
        self.optimizer.step()
        value = loss.item()
        return time.perf_counter() - begun, value


def versions():
    from importlib import metadata

    found = {"python": sys.version.split()[0]}
    for package in ("numpy", "torch", "torch_geometric", "torch_sparse", "lacis"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return found


def answer(order, state):
    if order["do"] == "prepare":
        state["training"] = Training(order)
        return {"versions": versions()}
    training = state["training"]
    if order["do"] == "epochs":
        seconds, losses = zip(*(training.epoch() for _ in range(order["count"])))
        return {"seconds": seconds, "losses": [loss if loss == loss else None for loss in losses]}
    return {"base_bytes": training.base, "peak_bytes": status("VmHWM")}


def main():
    # What libraries print must not get between our lines.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    state = {}
    for line in sys.stdin:
        try:
            said = answer(json.loads(line), state)
        except Missing as why:
            said = {"error": str(why)}
        except (Exception, MemoryError) as error:
            text = str(error).splitlines()
            said = {"error": f"{type(error).__name__}: {text[0] if text else ''}"}
        answers.write(json.dumps(said) + "\n")
        answers.flush()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
