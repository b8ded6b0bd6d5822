from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["NeighborLoader"]

class NeighborLoader:
    data: Any
    batch_size: int
    transform: Callable[[Any], Any] | None
    num_neighbors: list[int]
    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int],
        input_nodes: Any = None,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        num_workers: int = 1,
        prefetch_factor: int | None = 2,
        transform: Callable[[Any], Any] | None = None,
        generator: Any = None,
        is_sorted: bool = False,
        subgraph_type: str = "directional",
        input_id: Any = None,
        **others: Any,
    ) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __call__(self, index: Any) -> Any: ...

def sampled(found: Any, count: int) -> tuple[Any, Any, Any, Any, list[int], list[int]]: ...
