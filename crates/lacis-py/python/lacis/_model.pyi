from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ._graphs import Graph

class Model:
    path: Path
    def __init__(
        self, path: str | PathLike[str], keep: Any = None, graph: Any = None,
    ) -> None: ...
    def predict(
        self, graph: Graph | Any | None = None, what: str = "labels", nodes: Any = None,
    ) -> NDArray[Any]: ...
    def state_dict(self) -> dict[str, NDArray[Any]]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

def read_tensors(path: str | PathLike[str]) -> dict[str, NDArray[Any]]: ...
def write_tensors(
    path: str | PathLike[str], tensors: Mapping[str, NDArray[Any]],
    words: Mapping[str, str] | None = None,
) -> None: ...
