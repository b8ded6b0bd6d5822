from . import loader as loader
from ._graphs import Graph as Graph
from ._graphs import load_graph as load_graph
from ._train import load_model as load_model
from ._train import train as train
from ._versions import show_versions as show_versions

__version__: str
