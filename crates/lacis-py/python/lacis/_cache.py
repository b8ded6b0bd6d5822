"""What follows from a tensor, kept as long as the tensor and its version stay.

An entry belongs to a storage, not to an address: it holds a weak reference to the storage, which
keeps the address from being given to another one, and is dropped when the storage is gone. Writing
to a tensor moves its version, and what was kept of it is made anew. Writes that torch does not see
(through ``.data``, NumPy or DLPack) do not; ``LACIS_CHECK=1`` compares the contents on every use.
"""

import os
from collections import OrderedDict
from threading import RLock

import torch
from torch.multiprocessing.reductions import StorageWeakRef

# Tensors of which something is kept; the least recently used makes room.
LIMIT = 64

_entries = OrderedDict()
_lock = RLock()
_counts = {"hits": 0, "misses": 0}


class _Entry:
    __slots__ = ("storage", "version", "kept", "digest")

    def __init__(self, tensor, storage):
        self.storage = StorageWeakRef(storage)
        self.version = tensor._version
        self.kept = {}
        self.digest = _digest(tensor) if _checking() else None


def _checking():
    return os.environ.get("LACIS_CHECK", "0") not in ("", "0")


def _digest(tensor):
    import hashlib

    data = tensor.detach().contiguous().view(-1).view(torch.uint8)
    return hashlib.blake2b(data.numpy().tobytes(), digest_size=16).digest()


def identity(tensor):
    """What names the contents of a tensor: storage, place in it and version."""
    storage = tensor.untyped_storage()
    return (storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype,
            tensor._version)


def derived(tensor, key, make, others=()):
    """``make()``, or what it gave for the same tensor at the same version and the same key.

    ``others`` are tensors that the result follows from too. What follows from inference tensors,
    which have no version, is not kept.
    """
    if tensor.is_inference() or any(other.is_inference() for other in others):
        return make()
    if others:
        key = (key, *(identity(other) for other in others))
    storage = tensor.untyped_storage()
    name = (storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
    with _lock:
        entry = _entries.get(name)
        if entry is not None and _is_current(entry, tensor):
            _entries.move_to_end(name)
            found = entry.kept.get(key)
            if found is not None:
                _counts["hits"] += 1
                return found[0]
        else:
            _drop_expired()
            entry = _entries[name] = _Entry(tensor, storage)
            _entries.move_to_end(name)
            while len(_entries) > LIMIT:
                _entries.popitem(last=False)
    _counts["misses"] += 1
    # Weak references to the others keep their addresses from naming anything else.
    refs = [StorageWeakRef(other.untyped_storage()) for other in others]
    value = make()
    with _lock:
        entry.kept[key] = (value, refs)
    return value


def _is_current(entry, tensor):
    if entry.version != tensor._version:
        return False
    if _checking():
        return entry.digest is not None and entry.digest == _digest(tensor)
    return True


def _drop_expired():
    for name in [name for name, entry in _entries.items() if entry.storage.expired()]:
        del _entries[name]


def peek(tensor, key):
    """What is kept under a key, or None."""
    if tensor.is_inference():
        return None
    storage = tensor.untyped_storage()
    name = (storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
    entry = _entries.get(name)
    if entry is None or not _is_current(entry, tensor):
        return None
    found = entry.kept.get(key)
    return None if found is None else found[0]


def clear_caches():
    """Forget everything that was derived from tensors, and give unused memory back."""
    from . import _plans
    from ._lacis import clear_result_memory

    with _lock:
        _entries.clear()
        _counts.update(hits=0, misses=0)
    _plans.clear()
    clear_result_memory()


def _bytes_of(value):
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (tuple, list)):
        return sum(_bytes_of(item) for item in value)
    return getattr(value, "nbytes", 0) or 0


def summary():
    """How many tensors something is kept of, how many things, their bytes, and hits and misses."""
    with _lock:
        _drop_expired()
        kept = [value for entry in _entries.values() for value, _ in entry.kept.values()]
    return {"tensors": len(_entries), "objects": len(kept),
            "bytes": sum(_bytes_of(value) for value in kept), **_counts}
