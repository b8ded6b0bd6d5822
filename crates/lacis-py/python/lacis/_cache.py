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

# Tensors of which something is kept, and how many results of one kind are that follow from others
# too, such as weights that change with each call; the least recently used makes room.
LIMIT, MOST_OTHERS = 64, 8

_entries = OrderedDict()
_lock = RLock()
_counts = {"hits": 0, "misses": 0}


class _Entry:
    __slots__ = ("storage", "version", "kept", "following", "digest")

    def __init__(self, tensor, storage):
        self.storage = StorageWeakRef(storage)
        self.version = tensor._version
        self.kept = {}
        # By key, and then by what else a result follows from.
        self.following = {}
        self.digest = _digest(tensor) if _checking() else None

    def place(self, key, ids):
        """Where a result is kept, and under which name."""
        return (self.following.setdefault(key, OrderedDict()), ids) if ids else (self.kept, key)

    def values(self):
        """All results."""
        return [value for kept in (self.kept, *list(self.following.values()))
                for value, _ in list(kept.values())]


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
            tensor._version, _digest(tensor) if _checking() else None)


def derived(tensor, key, make, others=(), which=()):
    """``make()``, or what it gave for the same tensor at the same version and the same key.

    ``others`` are tensors that the result follows from too, and ``which`` names what else it does:
    of those only a few are kept. What follows from inference tensors, which have no version, is
    not kept.
    """
    if tensor.is_inference() or any(other.is_inference() for other in others):
        return make()
    ids = (*which, *(identity(other) for other in others))
    storage = tensor.untyped_storage()
    name = (storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
    with _lock:
        entry = _entries.get(name)
        if entry is not None and _is_current(entry, tensor):
            _entries.move_to_end(name)
            kept, place = entry.place(key, ids)
            found = kept.get(place)
            if found is not None:
                _counts["hits"] += 1
                if ids:
                    kept.move_to_end(place)
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
        kept, place = entry.place(key, ids)
        kept[place] = (value, refs)
        if ids and len(kept) > MOST_OTHERS:
            kept.popitem(last=False)
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


def peek(tensor, key, which=()):
    """What is kept under a key, or None."""
    if tensor.is_inference():
        return None
    storage = tensor.untyped_storage()
    name = (storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
    entry = _entries.get(name)
    if entry is None or not _is_current(entry, tensor):
        return None
    kept, place = entry.place(key, which)
    found = kept.get(place)
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
        kept = [value for entry in _entries.values() for value in entry.values()]
    return {"tensors": len(_entries), "objects": len(kept),
            "bytes": sum(_bytes_of(value) for value in kept), **_counts}
