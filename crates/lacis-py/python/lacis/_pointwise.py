"""What lies between layers, on large matrices: ReLU, the logarithm of softmax, cross-entropy.

The first two are torch's own kernels and numbers; their results go where those of layers go, into
memory that is used again. What torch asks the system for is cleared page by page, which takes
longer than either. Cross-entropy is one pass that leaves the gradient, where torch makes four.
"""

import torch

from . import _lacis
from ._backward import is_batched
from ._crew import crew
from ._torch import NUMBERS, empty, raw, raw_list

# Types that are computed here, from this many numbers on.
OWN = (torch.float32, torch.float64)
LARGE = 1 << 18
# Exponentials that take a millisecond or more.
_POWERS = 1 << 21

_aten = torch.ops.aten
_relu_back = _aten.threshold_backward.grad_input
_log_softmax_back = _aten._log_softmax_backward_data.out


def _needs_gradient(x):
    return x.requires_grad and torch.is_grad_enabled()


def _relu(x):
    return torch.clamp_min(x, 0, out=empty(*x.shape, x.dtype))


def relu(x):
    """``max(x, 0)`` of a matrix, rows together."""
    return _Relu.apply(x) if _needs_gradient(x) else _relu(x)


class _Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = _relu(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        if torch.is_grad_enabled() or is_batched(grad):
            return grad.masked_fill(y <= 0, 0)
        return _relu_back(grad, y, 0, grad_input=empty(*y.shape, y.dtype))


def _log_softmax(x):
    return _aten._log_softmax.out(x, 1, False, out=empty(*x.shape, x.dtype))


def log_softmax(x):
    """The logarithm of softmax along rows."""
    return _LogSoftmax.apply(x) if _needs_gradient(x) else _log_softmax(x)


class _LogSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = _log_softmax(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        if torch.is_grad_enabled() or is_batched(grad):
            return grad - y.exp() * grad.sum(1, keepdim=True)
        return _log_softmax_back(grad, y, 1, y.dtype, out=empty(*y.shape, y.dtype))


def cross_entropy(x, of, original):
    """The mean over rows; `of` is (classes, the class of rows that do not count), and `original`
    the same in torch's operations."""
    return _CrossEntropy.apply(x, of, original) if _needs_gradient(x) else _loss(x, of)


def _loss(x, of, gradient=None):
    classes, ignored = of
    loss = torch.empty(1, dtype=torch.float64)
    given = (raw(x), raw_list(classes), ignored, raw_list(loss),
             None if gradient is None else raw(gradient))
    _lacis.cross_entropy(NUMBERS[x.dtype], given, crew(x.numel() / _POWERS))
    return loss[0].to(x.dtype)


class _CrossEntropy(torch.autograd.Function):
    """The gradient comes with the loss, in one pass, and is given away by the first pass back."""

    @staticmethod
    def forward(ctx, x, of, original):
        ctx.of, ctx.original = of, original
        ctx.gradient = empty(*x.shape, x.dtype)
        ctx.save_for_backward(x)
        return _loss(x, of, ctx.gradient)

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return _again(ctx, grad), None, None
        if is_batched(grad):
            return _gradient(ctx) * grad, None, None
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            gradient = _gradient(ctx)
        return gradient if grad.item() == 1.0 else gradient.mul_(grad), None, None


def _gradient(ctx):
    """The loss's gradient, in memory of its own."""
    (x,) = ctx.saved_tensors
    gradient = empty(*x.shape, x.dtype)
    _loss(x, ctx.of, gradient)
    return gradient


def _again(ctx, grad):
    """A gradient that can be differentiated again: that of the original."""
    (x,) = ctx.saved_tensors
    with torch.enable_grad():
        return torch.autograd.grad(ctx.original(x), x, grad, create_graph=True)[0]
