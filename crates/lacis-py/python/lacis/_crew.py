"""How many threads a kernel uses, with torch's own out of its way.

Threads of GNU OpenMP, which torch brings along, wait for their next piece of work by spinning, some
milliseconds long. Where there are no more cores than threads they take half of one from a kernel
that runs now. OpenMP's own call for that case, `omp_pause_resource_all`, sends them home; torch's
next parallel operation makes new ones: in a tenth of a millisecond, or in several where the system
puts them beside their maker at first. It is used before kernels that take a millisecond or more,
while Lacis is patched in (``LACIS_KEEP_THREADS=1``: never).
"""

import ctypes
import os

import torch

# Multiplications that take a millisecond or more: of a sparse product, of a dense one; and numbers
# that an attention gathers meanwhile.
SPARSE, DENSE, ATTENTION = 1 << 24, 1 << 27, 1 << 21
_SOFT = 1
# Milliseconds of work that threads are sent home for.
_WORTH = 1.0
# Making new threads takes as long as there are many.
_MOST_THREADS = 16

threads = torch.get_num_threads


def _find():
    """GNU OpenMP's call, where torch uses that and nobody said no."""
    if os.environ.get("LACIS_KEEP_THREADS", "0") not in ("", "0"):
        return None
    try:
        with open("/proc/self/maps") as maps:
            path = next((line.split()[-1] for line in maps if "libgomp" in line), None)
        return None if path is None else ctypes.CDLL(path).omp_pause_resource_all
    except (OSError, AttributeError):
        return None


def _cores():
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


_pause, _cores_here = _find(), _cores()


def crew(work):
    """As many threads as torch uses; `work` is how many milliseconds' worth there is, at least."""
    count = threads()
    if work >= _WORTH and _pause is not None and 1 < count <= _MOST_THREADS \
            and 2 * count > _cores_here:
        _pause(_SOFT)
    return count
