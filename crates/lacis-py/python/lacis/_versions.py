"""What is installed here, for reports of problems."""

import platform
import sys
from importlib import metadata

from . import _lacis

_PEERS = ("numpy", "torch", "torch_geometric", "torch_sparse", "torch_scatter", "pyg_lib", "scipy")


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def show_versions():
    """Prints the versions of Lacis and its neighbours, the instruction sets and the threads."""
    threads, decided_by = _lacis.default_threads()
    lines = {
        "lacis": _lacis.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
        **{package: _version(package) for package in _PEERS},
        "instruction sets": ", ".join(_lacis.instruction_sets()),
        "threads": f"{threads}, decided by {decided_by}",
    }
    width = max(map(len, lines))
    for name, value in lines.items():
        print(f"{name:{width}}  {value}")
