"""GCN, SAGE, GIN and GraphConv: one sparse product and what is around it."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .._graph import check_features, require
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


def sage(self, x, edge_index, size=None):
    source, target = pair_of(x)
    operator = gather(self, (source, target), edge_index, size)

    def run():
        own = source
        if self.project and hasattr(self, "lin"):
            own = self.lin(source).relu()
        out = self.lin_l(operator(own))
        if self.root_weight and target is not None:
            out = out + self.lin_r(target)
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out

    return run


def gin(self, x, edge_index, size=None):
    source, target = pair_of(x)
    operator = gather(self, (source, target), edge_index, size)

    def run():
        out = operator(source)
        if target is not None:
            out = out + (1 + self.eps) * target
        return self.nn(out)

    return run


def graph(self, x, edge_index, edge_weight=None, size=None):
    source, target = pair_of(x)
    require(edge_weight is None or isinstance(edge_weight, Tensor), "weights that are no tensor")
    operator = gather(self, (source, target), edge_index, size, edge_weight)

    def run():
        out = self.lin_rel(operator(source))
        return out if target is None else out + self.lin_root(target)

    return run
