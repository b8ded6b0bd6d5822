"""The functions that `patch()` replaces: reductions by index, and products with sparse matrices."""

import functools
import types

import torch
from torch import Tensor

from . import _patch, _pointwise, _report
from . import _torch as ops
from ._inputs import Decline, is_plain, is_sparse_tensor, require, segments_of, sparse_input
from ._layers.common import requires_grad, sparse_product

# Below this many numbers torch's own reduction is as fast.
_FEW = 1 << 15
_is_compiling = torch.compiler.is_compiling
_is_tracing = torch._C._get_tracing_state


def _replacement(name, original, fused):
    """Runs `fused`, or the original where that declines or nothing is patched."""

    @functools.wraps(original)
    def function(*args, **kwargs):
        if _is_compiling() or not _patch._state["active"]:
            return original(*args, **kwargs)
        record = _report.record(name)
        why = _patch.bypassed()
        if why is None:
            try:
                run = fused(*args, **kwargs)
            except Decline as declined:
                why = str(declined)
            except Exception as error:  # the original will say what is wrong
                why = f"{type(error).__name__}: {error}"
        if why is not None:
            record.declined[why] += 1
            return original(*args, **kwargs)
        return record.run(run)

    return function


# Made once for each original: TorchScript knows functions by their addresses.
_made = {}


def _large(name, original, fused):
    """As :func:`_replacement`, of functions that small tensors come to often and pass quickly."""
    if original in _made:
        return _made[original]
    replacement = _replacement(name, original, fused)

    @functools.wraps(original)
    def function(input, *args, **kwargs):
        if _is_compiling() or type(input) is not Tensor or _is_tracing() \
                or input.numel() < _pointwise.LARGE:
            return original(input, *args, **kwargs)
        return replacement(input, *args, **kwargs)

    # As pickle finds it: what holds a patched function can be saved and sent.
    if getattr(original, "__module__", None) != "torch.nn.functional":
        is_method = isinstance(original, types.MethodDescriptorType)
        function.__module__ = "torch"
        function.__qualname__ = f"Tensor.{name}" if is_method else name
    _script_as(function, original)
    _made[original] = function
    return function


def _script_as(function, original):
    """TorchScript, where torch still has it, compiles the original in its place."""
    known = getattr(torch.jit, "_builtins", None)
    builtin = None if known is None else known._find_builtin(original)
    if builtin is not None:
        known._register_builtin(function, builtin)
    function.__script_if_tracing_wrapper = True
    function.__original_fn = original


def _check_matrix(x):
    require(x.device.type == "cpu" and x.layout is torch.strided, "a tensor not on the CPU")
    require(x.dim() == 2 and x.is_contiguous(), "a tensor that is no matrix with its rows together")
    require(x.dtype in _pointwise.OWN, f"{x.dtype}")
    require(not torch.is_autocast_enabled("cpu"), "autocast")


def relu(original):
    def fused(x):
        _check_matrix(x)
        return lambda: _pointwise.relu(x)

    return _large("relu", original, fused)


def log_softmax(original):
    def fused(x, dim, dtype=None):
        require(type(dim) is int and dim in (1, -1), "another dimension than the last")
        require(dtype is None or dtype is x.dtype, "another type of result")
        _check_matrix(x)
        return lambda: _pointwise.log_softmax(x)

    return _large("log_softmax", original, fused)


def cross_entropy(original):
    def fused(x, target, weight=None, size_average=None, ignore_index=-100, reduce=None,
              reduction="mean", label_smoothing=0.0):
        require(weight is None and label_smoothing == 0.0, "weights of classes, or smooth labels")
        require(size_average is None and reduce is None and reduction == "mean", "no mean")
        _check_matrix(x)
        require(is_plain(target) and target.dtype is torch.int64 and target.dim() == 1
                and target.numel() == x.size(0), "targets that are no vector of classes")
        of = (target.contiguous(), ignore_index)

        def again(x):
            return original(x, of[0], ignore_index=ignore_index)

        def run():
            try:
                return _pointwise.cross_entropy(x, of, again)
            except (ValueError, IndexError):  # nothing was done; torch says which class is none
                return again(x)

        return run

    return _large("cross_entropy", original, fused)


def _rows_of(src, index, dim):
    """`src` as a matrix whose rows the index names."""
    require(isinstance(src, Tensor) and isinstance(index, Tensor), "arguments that are no tensors")
    require(is_plain(src) and type(index) is Tensor and index.device.type == "cpu",
            "tensors that are not plain ones on the CPU")
    require(src.dtype in ops.NUMBERS and index.dtype is torch.int64,
            f"{src.dtype} by {index.dtype}")
    require(index.dim() == 1 and src.dim() >= 1, "an index that is no vector")
    require(dim in (0, -src.dim()), "another dimension than the first")
    require(src.size(0) == index.numel(), "not one index per row")
    require(src.numel() >= _FEW, "a small tensor")
    return src.reshape(src.size(0), -1)


def _n_segments(index, n):
    return (int(index.max()) + 1 if index.numel() else 0) if n is None else int(n)


def scatter(original):
    def fused(src, index, dim=0, dim_size=None, reduce="sum"):
        x = _rows_of(src, index, dim)
        require(reduce in ("sum", "add", "mean", "max", "min", "amax", "amin"), f"{reduce!r}")
        n = _n_segments(index, dim_size)
        segments = segments_of(index, n)
        shape = (n, *src.shape[1:])
        return lambda: ops.segment_reduce(x, index, segments, reduce).view(shape)

    return _replacement("scatter", original, fused)


def segment(original):
    def fused(src, ptr, reduce="sum"):
        require(isinstance(ptr, Tensor) and ptr.dim() == 1, "pointers that are no vector")
        require(reduce in ("sum", "mean"), f"{reduce!r}")
        require(isinstance(src, Tensor) and src.numel() >= _FEW, "a small tensor")
        from ._cache import derived

        def make():
            lengths = ptr[1:] - ptr[:-1]
            return torch.repeat_interleave(torch.arange(lengths.numel()), lengths)

        require(is_plain(src) and is_plain(ptr) and ptr.numel() > 0 and int(ptr[0]) == 0
                and int(ptr[-1]) == src.size(0), "pointers that do not fit")
        index = derived(ptr, "index", make)
        x = _rows_of(src, index, 0)
        segments = segments_of(index, ptr.numel() - 1)
        shape = (ptr.numel() - 1, *src.shape[1:])
        return lambda: ops.segment_reduce(x, index, segments, reduce).view(shape)

    return _replacement("segment", original, fused)


def softmax(original):
    def fused(src, index=None, ptr=None, num_nodes=None, dim=0):
        require(ptr is None and index is not None, "pointers instead of an index")
        x = _rows_of(src, index, dim)
        segments = segments_of(index, _n_segments(index, num_nodes))
        return lambda: ops.segment_softmax(x, segments).view(src.shape)

    return _replacement("softmax", original, fused)


def _dense(other, sparse):
    require(isinstance(other, Tensor) and is_plain(other) and other.layout is torch.strided,
            "an operand that is no plain tensor on the CPU")
    require(other.dim() == 2 and other.dtype in ops.NUMBERS, "an operand that is no float matrix")
    require(other.size(0) == sparse.size[1], "sizes that do not fit")
    require(other.size(1) > 0, "an operand without columns")


def spmm(original):
    def fused(src, other, reduce="sum"):
        reduce = "sum" if reduce == "add" else reduce
        require(reduce in ("sum", "mean", "min", "max"), f"{reduce!r}")
        return _product(src, other, reduce)

    return _replacement("spmm", original, fused)


def _product(src, other, reduce):
    require(is_sparse_tensor(src) or (isinstance(src, Tensor) and src.layout is not torch.strided),
            "a matrix that is not sparse")
    require(not requires_grad(src), "a sparse matrix whose values need a gradient")
    sparse = sparse_input(src)
    require(sparse is not None, "a matrix of unknown kind")
    is_coo = isinstance(src, Tensor) and src.layout is torch.sparse_coo
    require(reduce == "sum" or not (sparse.flipped or is_coo), f"{reduce} of this layout")
    _dense(other, sparse)
    product = sparse_product(sparse, other.dtype, reduce)
    return lambda: product(other)


def torch_sparse_matmul(original):
    def fused(src, other, reduce="sum"):
        require(is_sparse_tensor(src), "a matrix that is no SparseTensor")
        reduce = "sum" if reduce == "add" else reduce
        require(reduce in ("sum", "mean", "min", "max"), f"{reduce!r}")
        return _product(src, other, reduce)

    return _replacement("torch_sparse.matmul", original, fused)


def _matrix_product(a, b):
    """What `a @ b` and its other names are, which autocast has in a type of its own."""
    require(not torch.is_autocast_enabled("cpu"), "autocast")
    return _product(a, b, "sum")


def sparse_mm(original, name):
    def fused(mat1, mat2, reduce=None):
        require(isinstance(mat1, Tensor) and mat1.layout is not torch.strided, "a dense matrix")
        require(isinstance(mat2, Tensor) and mat2.layout is torch.strided, "two sparse matrices")
        if reduce is None:
            return _matrix_product(mat1, mat2)
        require(mat1.layout is torch.sparse_csr, f"{reduce} of this layout")
        names = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min"}
        require(reduce in names, f"{reduce!r}")
        return _product(mat1, mat2, names[reduce])

    return _replacement(name, original, fused)


def matmul(original):
    """`A @ x`: one look at the layout for dense matrices."""
    strided = torch.strided
    product = _replacement("sparse @ dense", original, _matrix_product)

    @functools.wraps(original)
    def __matmul__(self, other):
        if self.layout is strided:
            return original(self, other)
        return product(self, other)

    return __matmul__
