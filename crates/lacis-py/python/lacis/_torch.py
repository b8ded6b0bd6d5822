"""Sparse products, attention and segments on torch tensors: the kernels with autograd around."""

import torch

from . import _lacis
from ._backward import Result, each_alone, first_order
from ._crew import ATTENTION, SPARSE, crew, threads

# What a kernel calls a dtype, and in what it adds.
NUMBERS = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
SUMS = {torch.float32: torch.float32, torch.float64: torch.float64, torch.bfloat16: torch.float32}
REDUCE = {"sum": 0, "add": 0, "mean": 1, "max": 2, "min": 3, "mul": 4, "amax": 2, "amin": 3}
# Who gets the gradient of equal maxima.
SPLIT_EVENLY, FIRST, SPLIT_WITH_ZERO = 0, 1, 2

# From this size on results come from Lacis's own memory.
_LARGE_BYTES = 1 << 20
_from_dlpack = torch._C._from_dlpack


def empty(rows, cols, dtype):
    """A matrix to be written."""
    if rows * cols * dtype.itemsize >= _LARGE_BYTES:
        return _from_dlpack(_lacis.result(NUMBERS[dtype], rows, cols))
    return torch.empty(rows, cols, dtype=dtype)


def as_rows(x):
    """The same matrix with the elements of a row one after another; none for none."""
    # Small calls are made of questions like these: the usual answer comes first. Parts of conjugates
    # have the other sign in memory.
    if x is None or (x.is_contiguous() and not x.is_neg()):
        return x
    x = x.resolve_neg()
    rows, cols = x.shape
    if (cols > 1 and x.stride(1) != 1) or (rows > 1 and x.stride(0) < cols):
        return x.contiguous()
    return x


def raw(x):
    """A matrix, or none, as the kernels are told of it."""
    if x is None:
        return None
    rows, cols = x.shape
    return (x.data_ptr(), rows, cols, x.stride(0))


def raw_list(x):
    """A vector as the kernels are told of it."""
    return (x.data_ptr(), x.numel())


def address(x):
    """Where a vector is, 0 for none."""
    return 0 if x is None else x.data_ptr()


class Matrix:
    """``left · A · right`` with constant values: an adjacency, factors of its rows and columns,
    and values of its entries in the caller's order; each may be absent."""

    def __init__(self, adjacency, left=None, right=None, values=None):
        self.adjacency = adjacency
        self._size = adjacency.shape
        self.left, self.right, self.values = left, right, values
        self.flipped = False
        self._made = {}
        self._transpose = None

    @property
    def shape(self):
        rows, cols, _ = self._size
        return (cols, rows) if self.flipped else (rows, cols)

    @property
    def nnz(self):
        return self._size[2]

    @property
    def nbytes(self):
        return self.adjacency.nbytes

    def t(self):
        """The transpose, which shares everything."""
        if self._transpose is None:
            other = Matrix(self.adjacency, self.left, self.right, self.values)
            other.flipped, other._made, other._transpose = not self.flipped, self._made, self
            self._transpose = other
        return self._transpose

    def _factors(self, dtype):
        made = self._made.get(dtype)
        if made is None:
            made = self._made[dtype] = tuple(
                None if factor is None else factor.to(dtype).contiguous()
                for factor in (self.left, self.right))
        return made[::-1] if self.flipped else made

    def _arranged(self, dtype):
        if self.values is None:
            return None
        key = (dtype, self.flipped)
        made = self._made.get(key)
        if made is None:
            made = arrange(self.adjacency, self.values.detach().to(dtype), self.flipped)
            self._made[key] = made
        return made

    def plus_identity(self):
        """``A + I``, or None where the matrix has factors or values."""
        if self.left is not None or self.right is not None or self.values is not None:
            return None
        made = self._made.get("plus identity")
        if made is None:
            made = self._made["plus identity"] = Matrix(self.adjacency.plus_identity())
        return made.t() if self.flipped else made

    def product(self, x, bias=None, out=None, into=None):
        """``self @ x + bias`` without autograd, added to `out` or written `into` one that is
        given."""
        dtype, sums = x.dtype, SUMS[x.dtype]
        x = as_rows(x)
        y = into if out is None else out
        rows, width = x.shape
        if y is None:
            y = empty(self._size[1 if self.flipped else 0], width, dtype)
        if bias is not None and not (bias.dtype is sums and bias.shape == (width,)
                                     and bias.is_contiguous()):
            bias = bias.detach().to(sums).expand(width).contiguous()
        which = self._which(sums, bias, out is not None)
        given = ((x.data_ptr(), rows, width, x.stride(0)), raw(y), which)
        _lacis.spmm(self.adjacency, NUMBERS[dtype], given, self._crew(width))
        return y

    def _crew(self, width):
        return crew(self._size[2] * width / SPARSE)

    def _which(self, sums, bias, adds):
        left, right = self._factors(sums)
        return (self.flipped, 0, address(left), address(right), address(self._arranged(sums)),
                address(bias), adds)

    def back(self, grad, sample=None, out=None, into=None):
        """``selfᵀ @ grad`` without autograd; `sample` = (who, number) takes some of its pairs."""
        if sample is None or grad.dtype is not torch.float32:
            return self.t().product(grad, out=out, into=into)
        grad, (sampling, number) = as_rows(grad), sample
        dx = into if out is None else out
        if dx is None:
            dx = empty(self.shape[1], grad.size(1), grad.dtype)
        which = self.t()._which(torch.float32, None, out is not None)
        given = (number, (raw(grad), raw(dx), which))
        sampling.spmm(self.adjacency, given, self._crew(grad.size(1)))
        return dx

    def __call__(self, x, bias=None, sample=None):
        """``self @ x + bias``."""
        if torch.is_grad_enabled() and (x.requires_grad or
                                        (bias is not None and bias.requires_grad)):
            return _Product.apply(x, bias, self, sample)
        return self.product(x, bias)


def column_sums(x):
    """The sums of a matrix's columns, without autograd."""
    rows, cols = x.shape
    sums = torch.empty(cols, dtype=SUMS[x.dtype])
    given = (x.data_ptr(), rows, cols, x.stride(0))
    _lacis.column_sums(NUMBERS[x.dtype], (given, (sums.data_ptr(), cols)), threads())
    return sums


def attended(adjacency, y):
    """Threads for an attention over edges, which takes longer than a product by a score, its power
    and a gradient of each."""
    return crew(adjacency.shape[2] * y.size(1) / ATTENTION)


def arrange(adjacency, values, transposed):
    """Values of the caller's list in the order of a matrix, or of its transpose."""
    values = values.contiguous()
    if not transposed and not adjacency.permuted:
        return values
    out = torch.empty_like(values)
    adjacency.arrange(NUMBERS[values.dtype], (raw_list(values), raw_list(out)),
                      (transposed, threads()))
    return out


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias, matrix, sample):
        ctx.matrix, ctx.sample = matrix, sample
        ctx.bias_dtype = None if bias is None else bias.dtype
        return matrix.product(x, bias)

    @staticmethod
    @each_alone
    def backward(ctx, grad):
        needs_x, needs_bias, _, _ = ctx.needs_input_grad
        if torch.is_grad_enabled():
            # A product like any other, so that this can be differentiated again.
            dx = ctx.matrix.t()(grad) if needs_x else None
            return dx, grad.sum(0).to(ctx.bias_dtype) if needs_bias else None, None, None
        grad = as_rows(grad)
        dx = ctx.matrix.back(grad, ctx.sample) if needs_x else None
        dbias = column_sums(grad).to(ctx.bias_dtype) if needs_bias else None
        return dx, dbias, None, None


def weighted(adjacency, x, weight):
    """``Σ_e weight_e · x_j`` for each target, with a gradient of the weights too."""
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return _Weighted.apply(x, weight, adjacency)
    return Matrix(adjacency, values=weight).product(x)


class _Weighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, adjacency):
        needs_x, needs_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)
        ctx.adjacency, ctx.dtype = adjacency, weight.dtype
        return Matrix(adjacency, values=weight).product(x)

    @staticmethod
    @each_alone
    def backward(ctx, grad):
        if torch.is_grad_enabled() and not ctx.needs_input_grad[1]:  # a product like any other
            return Matrix(ctx.adjacency, values=ctx.saved_tensors[1]).t()(grad), None, None
        return _Weighted.first(ctx, grad)

    @staticmethod
    @first_order
    def first(ctx, grad):
        x, weight = ctx.saved_tensors
        grad = as_rows(grad)
        dx = dweight = None
        if ctx.needs_input_grad[0]:
            dx = Matrix(ctx.adjacency, values=weight).t().product(grad)
        if ctx.needs_input_grad[1]:
            x = as_rows(x)
            dweight = torch.empty(ctx.adjacency.shape[2], dtype=SUMS[x.dtype])
            _lacis.value_gradients(ctx.adjacency, NUMBERS[x.dtype],
                                   (raw(x), raw(grad), raw_list(dweight)), threads())
            dweight = dweight.to(ctx.dtype)
        return dx, dweight, None


def extreme(adjacency, x, reduce, ties, values=None):
    """The largest or smallest of the neighbours' rows; ``values`` are constants."""
    if torch.is_grad_enabled() and x.requires_grad:
        return _Extreme.apply(x, adjacency, REDUCE[reduce], ties, values)
    return _extreme(adjacency, as_rows(x), REDUCE[reduce], values)


def _extreme(adjacency, x, reduce, values):
    y = empty(adjacency.shape[0], x.size(1), x.dtype)
    if values is not None:
        values = arrange(adjacency, values.detach().to(SUMS[x.dtype]), False)
    which = (False, reduce, 0, 0, address(values), 0, False)
    _lacis.spmm(adjacency, NUMBERS[x.dtype], (raw(x), raw(y), which), threads())
    return y


class _Extreme(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, adjacency, reduce, ties, values):
        ctx.adjacency, ctx.reduce, ctx.ties = adjacency, reduce, ties
        if ties != FIRST:
            y = _extreme(adjacency, as_rows(x), reduce, values)
            ctx.save_for_backward(x, y, None, values)
            return y
        x = as_rows(x)
        y = empty(adjacency.shape[0], x.size(1), x.dtype)
        at = torch.empty(y.shape, dtype=torch.int32)
        own = None
        if values is not None:
            own = arrange(adjacency, values.detach().to(SUMS[x.dtype]), False)
        _lacis.spmm_arguments(adjacency, NUMBERS[x.dtype],
                              (raw(x), raw(y), raw_list(at), reduce, address(own)), threads())
        # Which entries they are is enough: programs may change features and results in place.
        ctx.save_for_backward(None, None, at, values)
        return y

    @staticmethod
    @first_order
    def backward(ctx, grad):
        x, y, at, values = ctx.saved_tensors
        adjacency, x, grad = ctx.adjacency, as_rows(x), as_rows(grad)
        dx = empty(adjacency.shape[1], grad.size(1), grad.dtype)
        own = [None, None]
        if values is not None:
            values = values.to(SUMS[grad.dtype])
            own = [arrange(adjacency, values, transposed) for transposed in (False, True)]
        if at is None:
            at = torch.empty(0, dtype=torch.int32)
        else:  # neither is read
            x, y = dx, grad
        tensors = (raw(x), raw(y), raw(grad), raw(dx), raw_list(at))
        _lacis.spmm_extreme_backward(
            adjacency, NUMBERS[grad.dtype],
            (tensors, ctx.reduce, ctx.ties, address(own[0]), address(own[1])), threads())
        return dx, None, None, None, None


# A bias this many times as large as what its column holds costs that four of its bits.
_STEADY = 16
# Rows, from all over a matrix, that show how large the numbers of a column are.
_SHOWN = 256


class _BeforeBias:
    """An attention's result, for the backward pass. A large one gets its layer's bias in its own
    memory, and kernels take that from it again."""

    def __init__(self, y, shift):
        self.holds_bias = shift is not None and y.numel() * y.element_size() >= _LARGE_BYTES
        # The parameter may be another by the time of the backward pass.
        self._shift = shift.detach().clone() if self.holds_bias else None
        if self.holds_bias:
            y.add_(shift)
        self._result = Result(y)

    def held(self):
        """As a result's."""
        return self._result.held()

    def take(self, again):
        """The result and what was added to its rows, or what `again()` makes of it and nothing; it
        is not kept any longer."""
        y, shift = self._result.take(lambda: None), self._shift
        if y is None or shift is not None and not self._is_steady(y):
            return again(), None
        return y, shift if shift is None else as_rows(shift.view(1, -1).to(SUMS[y.dtype]))

    def _is_steady(self, y):
        """Whether the sums still have enough bits of what there was before, in every column."""
        shown = y[::max(1, len(y) // _SHOWN)] - self._shift
        return bool((self._shift.abs() <= _STEADY * shown.abs().amax(0)).all())


def _with_bias(ctx, y, shift):
    """What a layer returns; its backward pass finds `y` in `ctx.result`."""
    ctx.result = _BeforeBias(y, shift)
    return y if shift is None or ctx.result.holds_bias else y + shift


class _Gat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, source, target, target_vectors, source_vectors, bias, shift, how):
        given = (source, target, target_vectors, source_vectors, bias)
        y, lse = _Gat.of(_Gat.readable(given), how)
        ctx.how = how
        ctx.save_for_backward(*given, lse)
        return _with_bias(ctx, y, shift)

    @staticmethod
    def readable(given):
        """The tensors as the kernels read them."""
        source, target, *vectors, bias = given
        sums = SUMS[source.dtype]
        return (as_rows(source), as_rows(target),
                *(vector.to(sums).contiguous() for vector in vectors),
                None if bias is None else as_rows(bias.to(sums)))

    @staticmethod
    def of(given, how):
        """The result, and a number per row and head for the backward pass."""
        source, target, t, u, bias = given
        adjacency, slope, p, seed = how
        y = empty(adjacency.shape[0], source.size(1), source.dtype)
        lse = torch.empty((y.size(0), t.size(0)), dtype=t.dtype)
        given = (raw(source), raw(target), raw(t), raw(u), slope)
        _lacis.gat(adjacency, NUMBERS[y.dtype], (given, (None, raw(bias), p, seed), raw(y),
                                                 raw(lse)), attended(adjacency, y))
        return y, lse

    @staticmethod
    @first_order
    def backward(ctx, grad):
        *saved, lse = ctx.saved_tensors
        given = _Gat.readable(saved)
        source, target, t, u, bias = given
        y, shift = ctx.result.take(lambda: _Gat.of(given, ctx.how)[0])
        adjacency, slope, p, seed = ctx.how
        dtype, grad = source.dtype, as_rows(grad)
        dsource = empty(*source.shape, dtype)
        dtarget = None if target is None else empty(*target.shape, dtype)
        dt, du = torch.empty_like(t), torch.empty_like(u)
        dbias = torch.empty_like(bias) if ctx.needs_input_grad[4] else None
        given = (raw(source), raw(target), raw(t), raw(u), slope)
        grads = (raw(dsource), raw(dtarget), raw(dt), raw(du), raw(dbias))
        _lacis.gat_backward(
            adjacency, NUMBERS[dtype],
            (given, (None, raw(bias), p, seed), (*map(raw, (y, lse, grad)), raw(shift)), grads),
            attended(adjacency, y))
        dshift = column_sums(grad) if ctx.needs_input_grad[5] else None
        return dsource, dtarget, *_typed(saved[2:], (dt, du, dbias)), dshift, None


class _GatV2(torch.autograd.Function):
    @staticmethod
    def forward(ctx, target, source, vectors, features, shift, how):
        given = (target, source, vectors, features)
        y, lse = _GatV2.of(_GatV2.readable(given), how)
        ctx.how = how
        ctx.save_for_backward(*given, lse)
        return _with_bias(ctx, y, shift)

    @staticmethod
    def readable(given):
        """The tensors as the kernels read them."""
        target, source, vectors, features = given
        return (as_rows(target), as_rows(source), vectors.to(SUMS[source.dtype]).contiguous(),
                as_rows(features))

    @staticmethod
    def of(given, how):
        """The result, and a number per row and head for the backward pass."""
        target, source, own, features = given
        adjacency, slope, p, seed = how
        y = empty(adjacency.shape[0], source.size(1), source.dtype)
        lse = torch.empty((y.size(0), own.size(0)), dtype=own.dtype)
        given, edges = (raw(target), raw(source), raw(own), slope), (raw(features), None, p, seed)
        _lacis.gatv2(adjacency, NUMBERS[y.dtype], (given, edges, raw(y), raw(lse)),
                     attended(adjacency, y))
        return y, lse

    @staticmethod
    @first_order
    def backward(ctx, grad):
        *saved, lse = ctx.saved_tensors
        given = _GatV2.readable(saved)
        target, source, own, features = given
        y, shift = ctx.result.take(lambda: _GatV2.of(given, ctx.how)[0])
        adjacency, slope, p, seed = ctx.how
        dtype, grad = source.dtype, as_rows(grad)
        dtarget, dsource = empty(*target.shape, dtype), empty(*source.shape, dtype)
        dvectors = torch.empty_like(own)
        dfeatures = empty(*features.shape, dtype) if ctx.needs_input_grad[3] else None
        given, edges = (raw(target), raw(source), raw(own), slope), (raw(features), None, p, seed)
        grads = (raw(dtarget), raw(dsource), raw(dvectors), raw(dfeatures))
        _lacis.gatv2_backward(adjacency, NUMBERS[dtype],
                              (given, edges, (*map(raw, (y, lse, grad)), raw(shift)), grads),
                              attended(adjacency, y))
        dshift = column_sums(grad) if ctx.needs_input_grad[4] else None
        return dtarget, dsource, *_typed(saved[2:], (dvectors, dfeatures)), dshift, None


def _typed(given, grads):
    """Gradients in the types of what they are of."""
    return [None if grad is None else grad.to(one.dtype) for one, grad in zip(given, grads)]


def seed_from_torch():
    """A seed drawn from torch's generator, so that `torch.manual_seed` repeats a run."""
    return int(torch.empty((), dtype=torch.int64).random_())


gat = _Gat.apply
gatv2 = _GatV2.apply


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, index, segments, reduce):
        ctx.segments, ctx.reduce, ctx.shape = segments, reduce, x.shape
        # Sums and means need nothing of x again.
        ctx.save_for_backward(x if reduce > 1 else None, index)
        return reduce_rows(as_rows(x), segments, reduce)

    @staticmethod
    @each_alone
    def backward(ctx, grad):
        x, index = ctx.saved_tensors
        # A product's gradient follows from its factors too, an extreme's only from which one it is.
        follows = grad.requires_grad or (ctx.reduce == REDUCE["mul"] and x.requires_grad)
        if torch.is_grad_enabled() and follows:
            return _again(grad, x, index, ctx.segments, ctx.reduce), None, None, None
        x, grad = as_rows(x), as_rows(grad)
        dx = empty(*ctx.shape, grad.dtype)
        given = raw(dx) if x is None else raw(x)
        _lacis.segment_reduce_backward(ctx.segments, NUMBERS[grad.dtype],
                                       (given, raw(grad), raw(dx), ctx.reduce), threads())
        return dx, None, None, None


def _again(grad, x, index, segments, reduce):
    """The gradient of a reduction in operations that can be differentiated again."""
    if reduce == REDUCE["mul"]:
        raise RuntimeError("lacis: the gradient of this reduction cannot be differentiated again; "
                           "lacis.unpatch() brings back an operation whose gradient can")
    if reduce > 1:  # equal extremes share the gradient
        with torch.no_grad():
            shares = (x == reduce_rows(as_rows(x), segments, reduce)[index]).to(grad.dtype)
            shares /= reduce_rows(shares, segments, 0)[index].clamp(min=1)
        return grad.index_select(0, index) * shares
    if reduce == 1:
        ones = torch.ones((index.numel(), 1), dtype=grad.dtype)
        grad = grad / reduce_rows(ones, segments, 0).clamp(min=1)
    return grad.index_select(0, index)


def reduce_rows(x, segments, reduce):
    """The rows of each segment as one, without autograd."""
    y = empty(segments.shape[0], x.size(1), x.dtype)
    _lacis.segment_reduce(segments, NUMBERS[x.dtype], (raw(x), raw(y), reduce), threads())
    return y


def segment_reduce(x, index, segments, reduce):
    """The rows of each segment as one; ``index`` is what the segments were made of."""
    if torch.is_grad_enabled() and x.requires_grad:
        return _Reduce.apply(x, index, segments, REDUCE[reduce])
    return reduce_rows(as_rows(x), segments, REDUCE[reduce])


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, segments):
        y = softmax_rows(as_rows(x), segments)
        ctx.segments, ctx.result = segments, Result(y)
        # Read only where the result was changed: the input may be changed, as it may with torch's.
        ctx.save_for_backward(x)
        return y

    @staticmethod
    @first_order
    def backward(ctx, grad):
        y = ctx.result.take(lambda: softmax_rows(as_rows(ctx.saved_tensors[0]), ctx.segments))
        grad = as_rows(grad)
        dx = empty(*y.shape, y.dtype)
        _lacis.segment_softmax_backward(ctx.segments, NUMBERS[y.dtype],
                                        (raw(y), raw(grad), raw(dx)), threads())
        return dx, None


def softmax_rows(x, segments):
    """Softmax over each segment, each column alone, without autograd."""
    y = empty(*x.shape, x.dtype)
    _lacis.segment_softmax(segments, NUMBERS[x.dtype], (raw(x), raw(y)), threads())
    return y


def segment_softmax(x, segments):
    """Softmax over each segment, each column alone."""
    if torch.is_grad_enabled() and x.requires_grad:
        return _Softmax.apply(x, segments)
    return softmax_rows(as_rows(x), segments)
