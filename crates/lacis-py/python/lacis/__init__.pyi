from . import loader as loader
from . import ops as ops
from ._graphs import Graph as Graph
from ._graphs import load_graph as load_graph
from ._train import load_model as load_model
from ._train import train as train
from ._cache import clear_caches as clear_caches
from ._optimize import optimize as optimize
from ._patch import patch as patch, patched as patched, unpatch as unpatch
from ._report import report as report
from ._versions import show_versions as show_versions

__version__: str
