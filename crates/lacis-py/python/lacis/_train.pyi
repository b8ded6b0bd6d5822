from os import PathLike
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ._graphs import Graph
from ._model import Model

class Plan:
    id: str
    formula: str
    predicted_epoch_ms: float | None
    peak_bytes: int | None
    plan_ms: float | None
    def __init__(self, event: dict[str, Any]) -> None: ...

class Run:
    interrupted: bool
    def __init__(
        self, events: list[dict[str, Any]], training: Any = None, folder: Any = None,
        keep: Any = None, graph: Any = None,
    ) -> None: ...
    @property
    def history(self) -> dict[str, NDArray[Any]]: ...
    @property
    def summary(self) -> dict[str, Any]: ...
    @property
    def plan(self) -> Plan | None: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def path(self) -> Path | None: ...
    @property
    def model(self) -> Model: ...

def train(
    graph: Graph | str | PathLike[str] | Any,
    model: str | None = None,
    hidden: int | None = None,
    epochs: int | None = None,
    *,
    out: str | PathLike[str] | None = None,
    progress: bool | None = None,
    **flags: Any,
) -> Run: ...
def load_model(run: Run | str | PathLike[str]) -> Model: ...
