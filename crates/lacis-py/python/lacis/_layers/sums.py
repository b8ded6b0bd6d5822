"""GCN, SAGE, GIN and GraphConv: one sparse product and the dense ones around it."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .._dense import combined, fits, fits_bias, linear
from .._inputs import check_features, require
from .._optimize import is_optimized, kept_product, order_of
from .._torch import Matrix
from .common import gather, norm_operator, only_sums, pair_of


def gcn(self, x, edge_index, edge_weight=None):
    check_features(x)
    if self.normalize:
        operator, dtype = norm_operator(self, x, edge_index, edge_weight, self.improved,
                                        self.add_self_loops, self.cached)
    else:
        only_sums(self)
        operator = gather(self, (x, x), edge_index, None, edge_weight)
        dtype = x.dtype if edge_weight is None else edge_weight.dtype
    lin, bias = self.lin, self.bias
    if isinstance(operator, Matrix) and dtype is x.dtype and fits(x, lin) and lin.bias is None \
            and fits_bias(bias, x.dtype, lin.weight.size(0)):
        order = order_of(self, "gcn", operator, x, (lin.weight.size(0), bias is not None, False))
        return lambda: combined(x, lin.weight, (None, None), bias, order)

    def run():
        h = linear(self.lin, x)
        if self.normalize or edge_weight is not None:
            h = h.to(torch.promote_types(h.dtype, dtype))
        if bias is None:
            return operator(h)
        if isinstance(operator, Matrix) and bias.shape == h.shape[1:] \
                and torch.promote_types(h.dtype, bias.dtype) is h.dtype:
            return operator(h, bias)
        return operator(h) + bias

    return run


def _with_root(self, kind, operator, source, target, linears):
    """`first(A·X) + second(T)`, as one operation where nobody can tell; `second` may be None."""
    first, second = linears
    if target is None:
        second = None
    if not fits(source, first) or (second is not None and not _adds(second, target, source)):
        out = first(_gathered(self, operator, source))
        return out if second is None else out + second(target)
    root = None if second is None else second.weight
    if not isinstance(operator, Matrix):
        gathered = operator(source)
        # Weights of edges may have made another type of them.
        if gathered.dtype is source.dtype:
            return combined(gathered, first.weight, (target, root), first.bias)
        out = first(gathered)
        return out if second is None else out + second(target)
    how = (first.weight.size(0), first.bias is not None, root is not None)
    order = order_of(self, kind, operator, source, how)
    own = None if second is None or target is source else target
    return combined(source, first.weight, (own, root), first.bias, order)


def _adds(second, target, source):
    """Whether the product of a node's own features can be added to that of its neighbours'."""
    return target.dtype is source.dtype and fits(target, second) and second.bias is None


def _gathered(self, operator, source):
    """The neighbours' features, kept where a layer is optimized and they stay the same. Who gets
    them may write to them, or hand them out."""
    gathered = kept_product(operator, source) if is_optimized(self) else None
    return operator(source) if gathered is None else gathered.clone()


def sage(self, x, edge_index, size=None):
    source, target = pair_of(x)
    operator = gather(self, (source, target), edge_index, size, pattern=True)

    def run():
        own = source
        if self.project and hasattr(self, "lin"):
            own = linear(self.lin, source).relu()
        second = self.lin_r if self.root_weight else None
        out = _with_root(self, "sage", operator, own, target if self.root_weight else None,
                         (self.lin_l, second))
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out

    return run


def gin(self, x, edge_index, size=None):
    source, target = pair_of(x)
    operator = gather(self, (source, target), edge_index, size, pattern=True)
    looped = None
    if target is source and isinstance(operator, Matrix) and _is_zero(self.eps, source):
        looped = operator.plus_identity()

    def run():
        if looped is None:
            out = _gathered(self, operator, source)
            if target is not None:
                out = out + (1 + self.eps) * target
            return _network(self.nn, out)
        first = _first_linear(self.nn, source)
        if first is None:
            return _network(self.nn, _gathered(self, looped, source))
        how = (first.weight.size(0), first.bias is not None, False)
        order = order_of(self, "gin", looped, source, how)
        out = combined(source, first.weight, (None, None), first.bias, order)
        return _network(self.nn, out, after_first=True)

    return run


def _is_zero(eps, x):
    """Whether a node counts as much as its neighbours, nobody learns how much, and the number is of
    no wider type than the features, which the original would make wider."""
    if isinstance(eps, Tensor):
        return not eps.requires_grad and eps.numel() == 1 and eps.item() == 0.0 \
            and torch.promote_types(eps.dtype, x.dtype) is x.dtype
    return eps == 0.0


def _is_sequence(nn):
    return type(nn) is torch.nn.Sequential and len(nn) > 0 and "forward" not in nn.__dict__ and \
        not (nn._forward_hooks or nn._forward_pre_hooks or nn._backward_hooks
             or nn._backward_pre_hooks)


def _first_linear(nn, x):
    """The linear map that a GIN's network begins with, where that can be moved."""
    first = nn[0] if _is_sequence(nn) else nn
    return first if fits(x, first) else None


def _network(nn, h, after_first=False):
    """A GIN's network, its linear maps by the kernels here."""
    if _is_sequence(nn):
        for module in list(nn)[1:] if after_first else nn:
            h = linear(module, h)
        return h
    return h if after_first else linear(nn, h)


def graph(self, x, edge_index, edge_weight=None, size=None):
    source, target = pair_of(x)
    require(edge_weight is None or isinstance(edge_weight, Tensor), "weights that are no tensor")
    operator = gather(self, (source, target), edge_index, size, edge_weight)
    return lambda: _with_root(self, "graph", operator, source, target,
                              (self.lin_rel, self.lin_root))
