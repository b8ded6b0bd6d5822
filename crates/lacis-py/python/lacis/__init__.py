"""Lacis: graph neural networks planned for the graph, the sizes and the machine they meet.

Two lines make an existing PyTorch Geometric program faster::

    import lacis
    lacis.patch()

The engine itself, without torch::

    graph = lacis.load_graph("cora-like")
    run = lacis.train(graph, model="gcn", hidden=64, epochs=200)

Importing this package imports neither torch nor numpy; what needs them is imported when it is used.
"""

from importlib import import_module as _import_module

from ._lacis import __version__

# Where each public name lives; a name is imported when it is first asked for.
_HOMES = {
    "patch": "_patch",
    "unpatch": "_patch",
    "patched": "_patch",
    "optimize": "_optimize",
    "report": "_report",
    "clear_caches": "_cache",
    "show_versions": "_versions",
    "Graph": "_graphs",
    "load_graph": "_graphs",
    "load_model": "_train",
    "train": "_train",
}
_MODULES = ("loader", "ops")

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name):
    if name in _HOMES:
        value = getattr(_import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
