"""GCN, SAGE, GIN and GraphConv: one sparse product and what is around it."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .._inputs import check_features, require
from .._optimize import gathers_first, is_free, is_optimized, kept_product
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
    linear = self.lin
    if is_optimized(self) and isinstance(operator, Matrix) and dtype is x.dtype \
            and is_free(linear) and not torch.is_autocast_enabled("cpu"):
        gathered = kept_product(operator, x)
        if gathered is not None or gathers_first(operator, x, linear.weight.size(0)):
            return lambda: F.linear(operator(x) if gathered is None else gathered,
                                    linear.weight, self.bias)

    def run():
        h = self.lin(x)
        if self.normalize or edge_weight is not None:
            h = h.to(torch.promote_types(h.dtype, dtype))
        bias = self.bias
        if bias is None:
            return operator(h)
        if isinstance(operator, Matrix) and torch.promote_types(h.dtype, bias.dtype) is h.dtype:
            return operator(h, bias)
        return operator(h) + bias

    return run


def _gathered(self, operator, source):
    """The neighbours' features, kept where a layer is optimized and they stay the same."""
    gathered = kept_product(operator, source) if is_optimized(self) else None
    return operator(source) if gathered is None else gathered


def _linear_of(self, operator, source, linear):
    """`linear(A·X)`, or `A·(X·W) + b` where that is cheaper and nobody can tell."""
    if is_optimized(self) and isinstance(operator, Matrix) and is_free(linear) \
            and not torch.is_autocast_enabled("cpu"):
        gathered = kept_product(operator, source)
        if gathered is not None:
            return linear(gathered)
        if not gathers_first(operator, source, linear.weight.size(0)):
            return operator(F.linear(source, linear.weight), linear.bias)
    return linear(operator(source))


def sage(self, x, edge_index, size=None):
    source, target = pair_of(x)
    operator = gather(self, (source, target), edge_index, size, pattern=True)

    def run():
        own = source
        if self.project and hasattr(self, "lin"):
            own = self.lin(source).relu()
        out = _linear_of(self, operator, own, self.lin_l)
        if self.root_weight and target is not None:
            out = out + self.lin_r(target)
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out

    return run


def gin(self, x, edge_index, size=None):
    source, target = pair_of(x)
    operator = gather(self, (source, target), edge_index, size, pattern=True)

    def run():
        if target is not None and is_optimized(self):
            linear = _first_linear(self.nn)
            if linear is not None and _narrows(operator, source, linear):
                h = F.linear(source, linear.weight)
                own = h if target is source else F.linear(target, linear.weight)
                out = operator(h, linear.bias) + (1 + self.eps) * own
                return _after_first(self.nn, out)
        out = _gathered(self, operator, source)
        if target is not None:
            out = out + (1 + self.eps) * target
        return self.nn(out)

    return run


def _first_linear(nn):
    """The linear map that a GIN's network begins with, where that can be moved."""
    if type(nn) is torch.nn.Sequential and len(nn) and not (nn._forward_hooks or
                                                            nn._forward_pre_hooks):
        nn = nn[0]
    return nn if is_free(nn) else None


def _after_first(nn, h):
    if type(nn) is not torch.nn.Sequential:
        return h
    for module in nn[1:]:
        h = module(h)
    return h


def _narrows(operator, x, linear):
    """Whether the linear map comes first: it is cheaper so, and nothing is kept of `A·X`."""
    if not isinstance(operator, Matrix) or torch.is_autocast_enabled("cpu"):
        return False
    return kept_product(operator, x) is None and not gathers_first(operator, x,
                                                                   linear.weight.size(0))


def graph(self, x, edge_index, edge_weight=None, size=None):
    source, target = pair_of(x)
    require(edge_weight is None or isinstance(edge_weight, Tensor), "weights that are no tensor")
    operator = gather(self, (source, target), edge_index, size, edge_weight)

    def run():
        out = _linear_of(self, operator, source, self.lin_rel)
        return out if target is None else out + self.lin_root(target)

    return run
