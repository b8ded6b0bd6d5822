"""What backward passes meet besides one gradient: many at a time, a second derivative, and results
that the program has changed since."""

import contextlib
import functools
import itertools

import torch

_library = torch.library.Library("lacis", "FRAGMENT")
_library.define("one_gradient(Tensor grad, int call, int which) -> Tensor")
_is_legacy, _is_batch = (getattr(torch._C._functorch, name, lambda grad: False)
                         for name in ("is_legacy_batchedtensor", "is_batchedtensor"))

# Backward passes that gradients are being put through one by one, by the number of the call.
_calls, _numbers = {}, itertools.count()


def is_batched(grad):
    """Whether these are gradients of many at a time (`is_grads_batched`, `vmap`), which have no
    memory that a kernel could read."""
    return _is_legacy(grad) or _is_batch(grad)


_library.impl("one_gradient", lambda grad, call, which: _calls[call].gradient(grad, which), "CPU")
# What a second derivative needs is put on record while a gradient is computed.
_library.impl("one_gradient", torch.library.fallthrough_kernel, "Autograd")


class _Passes:
    """Backward passes of one call. torch's loop over a batch asks for all first gradients, then for
    all second ones, in the same order: a pass is made once, and what it found is given out."""

    def __init__(self, backward, ctx):
        self._backward, self._ctx = backward, ctx
        self._found, self._next = [], {}

    def gradient(self, grad, which):
        at = self._next.get(which, 0)
        self._next[which] = at + 1
        if at == len(self._found):
            self._found.append(list(self._backward(self._ctx, grad)))
        found, self._found[at][which] = self._found[at][which], None
        return found


def each_alone(backward):
    """A backward pass that takes many gradients too: torch's loop over a batch calls it for each.
    They are found out by what they lack: to ask every gradient costs as much as a small layer."""

    @functools.wraps(backward)
    def wrapped(ctx, grad):
        try:
            grad.data_ptr()
        except RuntimeError:
            if not is_batched(grad):
                raise
        else:
            return backward(ctx, grad)
        call, result = next(_numbers), getattr(ctx, "result", None)
        _calls[call] = _Passes(backward, ctx)
        try:
            with result.held() if result is not None else contextlib.nullcontext():
                return tuple(torch.ops.lacis.one_gradient(grad, call, which) if needed else None
                             for which, needed in enumerate(ctx.needs_input_grad))
        finally:
            del _calls[call]

    return wrapped


class _Final(torch.autograd.Function):
    """A gradient that follows from these tensors, in a way that nobody can differentiate. It is the
    same tensor, no view of it: programs scale and clip their gradients in place."""

    @staticmethod
    def forward(ctx, gradient, *follows_from):
        ctx.mark_dirty(gradient)
        return gradient

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("lacis: this gradient cannot be differentiated again; lacis.unpatch() "
                           "brings back an operation whose gradient can")


def first_order(backward):
    """A backward pass whose gradients have none of their own: asking for these raises. torch's
    `once_differentiable` gives zeros where the second gradient is asked for of some tensors only.
    What gradients follow from are the tensors that `forward` was given, saved as they came (a copy
    in another layout is a stranger to autograd), and `ctx.also_from`."""

    @functools.wraps(backward)
    def wrapped(ctx, grad):
        if not torch.is_grad_enabled():
            return backward(ctx, grad)
        with torch.no_grad():
            found = backward(ctx, grad)
        sources = (grad, *ctx.saved_tensors, *getattr(ctx, "also_from", ()))
        follows_from = [one for one in sources if one is not None and one.requires_grad]
        if not follows_from:
            return found
        return tuple(None if one is None else _Final.apply(_whole(one), *follows_from)
                     for one in found)

    return each_alone(wrapped)


def _whole(x):
    """The same matrix, or a copy of one that is a part of another: those autograd does not let go
    as if they had been written anew."""
    return x.clone() if x._is_view() else x


class Result:
    """A tensor that the backward pass reads. Programs may change it in place, where they may with
    the original; then it is computed again, as it is for a second pass over a retained graph. Hooks
    on saved tensors do not see it, as torch would refuse one that was changed."""

    def __init__(self, y):
        self._y = y.detach()
        self._version = None if y.is_inference() else y._version
        self._is_held = False

    def get(self, again):
        """The tensor as it was, or what `again()` makes of it."""
        y = self._y
        return again() if y is None or y._version != self._version else y

    def take(self, again):
        """The same; it is not kept any longer, unless it is held."""
        y = self.get(again)
        if not self._is_held:
            self._y = None
        return y

    @contextlib.contextmanager
    def held(self):
        """While many passes take it, one after another."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held, self._y = False, None


class Owned:
    """A matrix that nobody else has, and that a backward pass may therefore overwrite. A second
    pass has it made again, and where many passes take it, each gets a copy."""

    def __init__(self, x):
        self._x, self._is_held = x, False

    def take(self, again):
        """The matrix, or what `again()` makes of it, to be overwritten."""
        x = self._x
        if x is None:
            return again()
        if self._is_held:
            return x.clone()
        self._x = None
        return x

    @contextlib.contextmanager
    def held(self):
        """While many passes take it, one after another."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held, self._x = False, None
