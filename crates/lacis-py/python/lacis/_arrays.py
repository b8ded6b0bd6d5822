"""Arrays of callers as NumPy arrays of the type a kernel takes, copied only where they must be."""

import numpy as np


def to_numpy(array):
    """A NumPy array of what may be one, a torch tensor on a CPU, or a list."""
    if hasattr(array, "detach"):
        array = array.detach()
        if array.device.type != "cpu":
            raise ValueError(f"a tensor on {array.device} cannot be used here; .cpu() copies it")
        array = array.resolve_conj().resolve_neg() if array.is_complex() else array
        array = array if str(array.layout) == "torch.strided" else array.to_dense()
        # NumPy has no such numbers.
        array = array.float() if str(array.dtype) == "torch.bfloat16" else array
        array = array.numpy()
    return np.asarray(array)


def indices(array, name):
    """A list of node or edge numbers: 64-bit, together in memory."""
    array = to_numpy(array)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{name} must be integers, not {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64)


def floats(array, name, dtype=np.float32):
    """Numbers, together in memory."""
    array = to_numpy(array)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be numbers, not {array.dtype}")
    return np.ascontiguousarray(array, dtype=dtype)


def nodes(mask, name, count):
    """The node numbers of a mask, or those that are listed."""
    if mask is None:
        return np.empty(0, dtype=np.int64)
    mask = to_numpy(mask)
    if mask.dtype == bool:
        if mask.shape != (count,):
            several = mask.ndim == 2 and len(mask) == count
            hint = f"; it has a column for each split, {name}[:, 0] is the first" * several
            raise ValueError(f"{name} has shape {mask.shape}, expected ({count},){hint}")
        return np.flatnonzero(mask).astype(np.int64, copy=False)
    return indices(mask, name).reshape(-1)
