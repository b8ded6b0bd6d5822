"""A trained network: its folder, its weights, its predictions."""

import json
import struct
from pathlib import Path

import numpy as np

from . import _arrays, _lacis
from ._graphs import Graph

_WHAT = ("labels", "probs", "logits", "embeddings")
_NAMES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32, "U8": np.uint8}


class Model:
    """The best weights of a run, under the names that torch_geometric's layers give them."""

    def __init__(self, path, keep=None, graph=None):
        self.path = Path(path)
        # A temporary folder lives as long as this.
        self._keep = keep
        # A graph that only this program has.
        self._graph = graph
        if not (self.path / "config.toml").is_file():
            raise FileNotFoundError(f"{self.path} holds no run; `lacis train --out` makes one")

    def predict(self, graph=None, what="labels", nodes=None):
        """``labels``, ``probs``, ``logits`` or ``embeddings`` (the last hidden layer), a row for
        every node, or for those that ``nodes`` lists or masks, of the run's own data or a graph.

        The model of a run on a graph that only Python had knows it; one that :func:`load_model`
        opens needs it here.
        """
        if what not in _WHAT:
            right = " or ".join([", ".join(map(repr, _WHAT[:-1])), repr(_WHAT[-1])])
            raise ValueError(f"what={what!r}; {right} would be right")
        if graph is not None and not isinstance(graph, Graph):
            graph = Graph.from_pyg(graph)
        data = self._graph if graph is None else graph._data
        rows = np.asarray(_lacis.results(self.path, data, what == "embeddings"))
        return self._as(what, rows if nodes is None else _chosen(rows, nodes))

    def _as(self, what, logits):
        """What is asked for, of the network's results."""
        loss = self._loss()
        if what in ("logits", "embeddings") or loss == "Squares":
            return logits
        if loss == "Binary":
            return 1 / (1 + np.exp(-logits)) if what == "probs" else (logits > 0).astype(np.int64)
        if what == "labels":
            return logits.argmax(axis=1)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def state_dict(self):
        """The weights as NumPy arrays by name; ``torch.from_numpy`` makes tensors of them."""
        return read_tensors(self.path / "model.safetensors")

    def load_state_dict(self, state):
        """Replaces the weights: the same names and shapes, as arrays or tensors."""
        own = self.state_dict()
        missing, unknown = own.keys() - state.keys(), state.keys() - own.keys()
        if missing or unknown:
            raise KeyError(f"missing {sorted(missing)}, unknown {sorted(unknown)}")
        new = {}
        for name, old in own.items():
            value = state[name]
            value = value.detach().cpu().numpy() if hasattr(value, "detach") else value
            value = np.ascontiguousarray(value, dtype=old.dtype)
            if value.shape != old.shape:
                raise ValueError(f"{name} has shape {value.shape}, expected {old.shape}")
            new[name] = value
        path = self.path / "model.safetensors"
        write_tensors(path, new, _words_of(path))

    def _loss(self):
        """Which loss the network was trained with: Classes, Binary or Squares."""
        return _found(json.loads((self.path / "plan.json").read_text()), "Loss") or "Classes"

    def __repr__(self):
        weights = self.state_dict()
        count = sum(value.size for value in weights.values())
        return f"Model({str(self.path)!r}, {count:,} weights in {len(weights)} tensors)"


def _chosen(rows, nodes):
    nodes = _arrays.nodes(nodes, "nodes", len(rows))
    if nodes.size and not 0 <= nodes.min() <= nodes.max() < len(rows):
        wrong = nodes[(nodes < 0) | (nodes >= len(rows))][0]
        raise ValueError(f"nodes: there is no node {wrong}; there are {len(rows)}")
    return rows[nodes]


def _found(tree, key):
    """The first text under a key, anywhere in a tree."""
    if isinstance(tree, dict):
        if isinstance(tree.get(key), str):
            return tree[key]
        tree = list(tree.values())
    if isinstance(tree, list):
        return next((found for item in tree if (found := _found(item, key))), None)
    return None


def _parts(path):
    """The head and the bytes of a ``.safetensors`` file."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    return json.loads(data[8:8 + length]), memoryview(data)[8 + length:]


def _words_of(path):
    """What such a file says beside its tensors."""
    return _parts(path)[0].get("__metadata__", {})


def read_tensors(path):
    """The arrays of a ``.safetensors`` file."""
    head, body = _parts(path)
    tensors = {}
    for name, tensor in head.items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            numbers = np.frombuffer(body[begin:end], dtype=_NAMES[tensor["dtype"]])
            tensors[name] = numbers.reshape(tensor["shape"]).copy()
    return tensors


def write_tensors(path, tensors, words=None):
    """Writes arrays, and words by key, as a ``.safetensors`` file, which appears whole or not at
    all."""
    names = {np.dtype(dtype): name for name, dtype in _NAMES.items()}
    head, parts, end = {"__metadata__": words} if words else {}, [], 0
    for name in sorted(tensors):
        part = np.ascontiguousarray(tensors[name]).tobytes()
        shape = list(tensors[name].shape)
        head[name] = {"dtype": names[tensors[name].dtype], "shape": shape,
                      "data_offsets": [end, end + len(part)]}
        parts.append(part)
        end += len(part)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    staged = Path(path).with_suffix(".tmp")
    staged.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    staged.replace(path)
