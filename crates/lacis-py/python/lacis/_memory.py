"""How malloc treats large tensors while Lacis is patched in.

glibc maps every large block anew and unmaps it when it is freed: a training epoch then spends a
fifth of its time on pages that the system clears again and again. While patched, freed blocks stay
with the process, up to a gigabyte at the end of the heap, and are used again. ``LACIS_KEEP_MEMORY=0``
leaves malloc alone; another allocator than glibc's is never touched.
"""

import ctypes
import functools
import os
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_KEPT_BYTES = 1 << 30
# What glibc begins with.
_DEFAULTS = {_TRIM_THRESHOLD: 128 << 10, _MMAP_MAX: 65536}


def _glibc():
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    known = all(hasattr(libc, name) for name in ("gnu_get_libc_version", "mallopt", "malloc_trim"))
    return libc if known else None


def _kept():
    """The allocator, where it is to be told anything."""
    return None if os.environ.get("LACIS_KEEP_MEMORY", "1") == "0" else _glibc()


@functools.cache
def trim():
    """Gives what malloc has free back to the system, once: what was freed before the first large
    graph came is not asked for again, what is freed later may be."""
    libc = _kept()
    if libc is not None:
        libc.malloc_trim(0)


def keep():
    """Let freed memory be used again; returns what undoes it, or None where nothing was done."""
    libc = _kept()
    if libc is None:
        return None
    libc.mallopt(_MMAP_MAX, 0)
    libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)

    def undo():
        for option, value in _DEFAULTS.items():
            libc.mallopt(option, value)
        libc.malloc_trim(0)

    return undo
