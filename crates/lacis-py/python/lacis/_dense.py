"""Dense products around a sparse one, ``A·X·Wᵀ + T·Rᵀ + b``, as one operation of autograd."""

from typing import Any, NamedTuple

import torch
from torch.nn.modules import module as _modules

from . import _lacis
from ._backward import each_alone
from ._crew import DENSE, crew
from ._torch import NUMBERS, address, as_rows, column_sums, empty, raw

# Which factor is transposed, as the kernels are told.
NN, NT, TN = 0, 1, 2
# Types whose products are computed here; torch has instructions of its own for bfloat16.
OWN = (torch.float32, torch.float64)
# From this many numbers of a gradient on, two products are worth a copy that makes them one.
_LARGE = 1 << 18
_LINEAR = {"torch_geometric.nn.dense.linear", "torch.nn.modules.linear"}


class Order(NamedTuple):
    """How a layer computes its products. Without a matrix there is only the dense one."""

    matrix: Any = None
    # Whether `A·X` comes before `·Wᵀ`, and back `Aᵀ·G` before `·W`.
    gathers_first: bool = True
    narrow_back: bool = False
    # `A·X` where it is known already, and who computes `Aᵀ·G` from some of its pairs.
    kept: Any = None
    sample: Any = None


_PLAIN = Order()


def multiply(x, z, form, bias=None, out=None):
    """``x·z``, ``x·zᵀ`` or ``xᵀ·z``, with a bias, added to `out` where that is given."""
    if x.dtype is not z.dtype:
        raise TypeError(f"lacis: a product of {x.dtype} and {z.dtype}")
    x, z = as_rows(x), as_rows(z)
    (rows, cols), (first, second) = x.shape, z.shape
    width = first if form == NT else second
    y = empty(cols if form == TN else rows, width, x.dtype) if out is None else out
    factors = (x.data_ptr(), rows, cols, x.stride(0)), (z.data_ptr(), first, second, z.stride(0))
    given = (*factors, raw(y), form, out is not None, address(bias))
    _lacis.gemm(NUMBERS[x.dtype], given, crew(rows * cols * width / DENSE))
    return y


def fits(x, *linears):
    """Whether these linear maps can be computed here, and nobody would notice: torch_geometric's or
    torch's own, without hooks or parametrizations, with plain weights that fit the features."""
    return x.dtype in OWN and x.dim() == 2 and not torch.is_autocast_enabled("cpu") \
        and not any_global_hook() and all(_is_free(linear, x) for linear in linears)


def any_hook(module):
    """Whether a hook is called by this module."""
    return module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or \
        module._backward_pre_hooks


def any_global_hook():
    """Whether a hook is called by every module."""
    return _modules._global_forward_hooks or _modules._global_forward_pre_hooks or \
        _modules._global_backward_hooks or _modules._global_backward_pre_hooks


def _is_free(linear, x):
    kind = type(linear)
    if kind.__name__ != "Linear" or kind.__module__ not in _LINEAR:
        return False
    own = linear.__dict__
    if "forward" in own or kind.forward.__module__ != kind.__module__:
        return False
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or \
            own["_backward_pre_hooks"]:
        return False
    parameters = own["_parameters"]
    weight = parameters.get("weight")
    if weight is None or not _is_plain(weight, x.dtype, 2):
        return False
    width, inner = weight.shape
    return width > 0 and inner > 0 and x.shape[1] == inner \
        and fits_bias(parameters.get("bias"), x.dtype, width)


def _is_plain(parameter, dtype, dimensions):
    return type(parameter) is torch.nn.Parameter and parameter.dtype is dtype \
        and parameter.dim() == dimensions and parameter.is_cpu \
        and parameter.layout is torch.strided


def fits_bias(bias, dtype, width):
    """Whether a layer's own bias can be added here."""
    return bias is None or (_is_plain(bias, dtype, 1) and bias.shape[0] == width)


def linear(module, x):
    """A linear map: by the kernels here, or by the module itself."""
    if not fits(x, module):
        return module(x)
    return combined(x, module.weight, (None, None), module.bias)


def combined(x, weight, own, bias, order=_PLAIN):
    """``A·x·weightᵀ + target·rootᵀ + bias``; `own` is (target, root), and no target is x."""
    target, root = own
    given = (x, weight, target, root, bias)
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in given):
        return _Combined.apply(*given, order)
    return _forward(given, order)[0]


def _forward(given, order):
    """The result, and `A·x` where the gradient needs it."""
    x, weight, target, root, bias = given
    own = x if target is None else target
    if bias is not None:
        bias = bias.contiguous()
    if order.matrix is None or order.gathers_first:
        gathered = x if order.matrix is None else order.kept
        if gathered is None:
            gathered = order.matrix.product(x)
        y = multiply(gathered, weight, NT, bias)
        if root is not None:
            multiply(own, root, NT, out=y)
        return y, None if gathered is x else gathered
    h = multiply(x, weight, NT)
    if root is None:
        return order.matrix.product(h, bias), None
    y = multiply(own, root, NT, bias)
    return order.matrix.product(h, out=y), None


class _Combined(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, target, root, bias, order):
        given = (x, weight, target, root, bias)
        y, gathered = _forward(given, order)
        ctx.order, ctx.shape = order, _Shape(target is not None, root is not None)
        ctx.save_for_backward(*_needed(given, gathered, ctx.needs_input_grad))
        return y

    @staticmethod
    @each_alone
    def backward(ctx, grad):
        saved, how = ctx.saved_tensors, (ctx.order, ctx.shape, ctx.needs_input_grad)
        if torch.is_grad_enabled():
            return *_again(saved, how, grad), None
        return *_backward(saved, how, as_rows(grad)), None


class _Shape(NamedTuple):
    """Which products there are beside the first."""

    has_target: bool
    has_root: bool


def _needed(given, gathered, needs):
    """What the needed gradients follow from: the rest may be changed in place before the backward
    pass, as it may with the originals."""
    x, weight, target, root, _ = given
    needs_x, needs_weight, needs_target, needs_root, *_ = needs
    # Of features that nobody learns `A·X` is enough, for second derivatives too.
    reads_x = needs_weight and (needs_x or gathered is None) or (target is None and needs_root)
    reads_root = needs_x if target is None else needs_target
    return (x if reads_x else None, weight if needs_x else None, target if needs_root else None,
            root if reads_root else None, gathered if needs_weight else None)


def _backward(saved, how, grad):
    """Only the gradients that somebody needs."""
    x, weight, target, root, gathered = saved
    order, shape, needs = how
    needs_x, needs_weight, needs_target, needs_root, needs_bias, _ = needs
    dx = dweight = dtarget = droot = None
    if _shares_input(how, grad):
        dx, dweight, droot = _side_by_side(saved, order, grad)
        return dx, dweight, None, droot, column_sums(grad) if needs_bias else None
    if needs_root:
        droot = multiply(grad, target if shape.has_target else x, TN)
    if needs_target:
        dtarget = multiply(grad, root, NN)
    if needs_x and shape.has_root and not shape.has_target:
        dx = multiply(grad, root, NN)
    if order.matrix is None or order.gathers_first:
        if needs_weight:
            dweight = multiply(grad, x if gathered is None else gathered, TN)
        if needs_x:
            dx = _back(order, grad, weight, dx)
    elif needs_x or needs_weight:
        back = order.matrix.back(grad, order.sample)
        dweight = multiply(back, x, TN) if needs_weight else None
        dx = multiply(back, weight, NN, out=dx) if needs_x else None
    return dx, dweight, dtarget, droot, column_sums(grad) if needs_bias else None


def _shares_input(how, grad):
    """Whether both weights meet the same features, all gradients are needed, and it is worth it."""
    order, shape, needs = how
    return shape.has_root and not shape.has_target and all(needs[at] for at in (0, 1, 3)) \
        and order.matrix is not None and not order.gathers_first and grad.numel() >= _LARGE


def _side_by_side(saved, order, grad):
    """The gradients of x, weight and root from ``[Aᵀ·grad | grad]``: x is read once, and dx
    written once."""
    x, weight, _, root, _ = saved
    width = grad.size(1)
    both = empty(grad.size(0), 2 * width, grad.dtype)
    order.matrix.back(grad, order.sample, into=both[:, :width])
    both[:, width:] = grad
    dweights = multiply(both, x, TN)
    dx = multiply(both, torch.cat([weight, root]), NN)
    return dx, dweights[:width].clone(), dweights[width:].clone()


def _back(order, grad, weight, dx):
    """``Aᵀ·grad·weight`` in the order that is cheaper, added to what there is of it."""
    if order.matrix is None:
        return multiply(grad, weight, NN, out=dx)
    if order.narrow_back:
        return multiply(order.matrix.back(grad, order.sample), weight, NN, out=dx)
    return order.matrix.back(multiply(grad, weight, NN), order.sample, out=dx)


def _again(saved, how, grad):
    """The gradients that somebody needs, in operations that can be differentiated again."""
    x, weight, target, root, gathered = saved
    order, shape, (needs_x, needs_weight, needs_target, needs_root, needs_bias, _) = how
    dx = dweight = None
    if needs_weight and gathered is not None and not needs_x:
        dweight = grad.t() @ gathered
    elif needs_x or needs_weight:
        back = grad if order.matrix is None else order.matrix.t()(grad)
        dx = back @ weight if needs_x else None
        dweight = back.t() @ x if needs_weight else None
    if needs_x and shape.has_root and not shape.has_target:
        dx = dx + grad @ root
    dtarget = grad @ root if needs_target else None
    droot = grad.t() @ (target if shape.has_target else x) if needs_root else None
    return dx, dweight, dtarget, droot, grad.sum(0) if needs_bias else None
