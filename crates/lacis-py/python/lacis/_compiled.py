"""Operators that `torch.compile` sees as one: conversions and caches are inside.

Registered with `torch.library`: a schema, a kernel, a fake kernel and a gradient each. Layers use
them while they are compiled; called directly they work like any other operator of torch.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _inputs
from ._torch import NUMBERS

_library = torch.library.Library("lacis", "DEF")
_library.define("gather(Tensor x, Tensor edge_index, int n_targets, str flow, str kind) -> Tensor")
_library.define("gather_back(Tensor grad, Tensor edge_index, int n_sources, str flow, str kind)"
                " -> Tensor")


def _matrix(edge_index, n_targets, n_sources, flow, kind):
    """The matrix of a kind: `sum`, `mean`, `norm` (no loops added) or `loops` (normalised)."""
    if kind == "sum":
        return _inputs.plain_matrix(edge_index, n_targets, n_sources, flow)
    if kind == "mean":
        return _inputs.mean_matrix(edge_index, n_targets, n_sources, flow)
    return _inputs.normalised(edge_index, n_targets, flow, kind == "loops")


def _checked(edge_index, *args):
    try:
        _inputs.check_edges(edge_index)
        return _matrix(edge_index, *args)
    except _inputs.Decline as why:
        raise IndexError(f"lacis::gather: {why}") from None


def _gather(x, edge_index, n_targets, flow, kind):
    return _checked(edge_index, n_targets, x.size(0), flow, kind).product(x)


def _gather_back(grad, edge_index, n_sources, flow, kind):
    return _checked(edge_index, grad.size(0), n_sources, flow, kind).t().product(grad)


_library.impl("gather", _gather, "CPU")
_library.impl("gather_back", _gather_back, "CPU")


@torch.library.register_fake("lacis::gather", lib=_library)
def _(x, edge_index, n_targets, flow, kind):
    return x.new_empty((n_targets, x.size(1)))


@torch.library.register_fake("lacis::gather_back", lib=_library)
def _(grad, edge_index, n_sources, flow, kind):
    return grad.new_empty((n_sources, grad.size(1)))


def _keep(ctx, inputs, output):
    x, edge_index, _, ctx.flow, ctx.kind = inputs
    ctx.n_sources = x.size(0)
    ctx.save_for_backward(edge_index)


def _backward(ctx, grad):
    (edge_index,) = ctx.saved_tensors
    dx = torch.ops.lacis.gather_back(grad, edge_index, ctx.n_sources, ctx.flow, ctx.kind)
    return dx, None, None, None, None


torch.library.register_autograd("lacis::gather", _backward, setup_context=_keep, lib=_library)


def _fits(x, edge_index):
    return (isinstance(x, Tensor) and x.dim() == 2 and x.device.type == "cpu"
            and x.dtype in NUMBERS and isinstance(edge_index, Tensor)
            and edge_index.layout is torch.strided and edge_index.dim() == 2
            and edge_index.size(0) == 2 and edge_index.dtype is torch.int64
            and not torch.is_autocast_enabled("cpu"))


def gcn(self, x, edge_index, edge_weight=None):
    if edge_weight is not None or not self.normalize or self.cached or not _fits(x, edge_index):
        return None
    kind = "loops" if self.add_self_loops else "norm"
    out = torch.ops.lacis.gather(self.lin(x), edge_index, x.size(0), self.flow, kind)
    return out if self.bias is None else out + self.bias


def _aggregated(self, x, edge_index, size):
    if size is not None or not _fits(x, edge_index) or self.aggr not in ("add", "sum", "mean"):
        return None
    kind = "mean" if self.aggr == "mean" else "sum"
    return torch.ops.lacis.gather(x, edge_index, x.size(0), self.flow, kind)


def sage(self, x, edge_index, size=None):
    if self.project:
        return None
    out = _aggregated(self, x, edge_index, size)
    if out is None:
        return None
    out = self.lin_l(out)
    if self.root_weight:
        out = out + self.lin_r(x)
    return F.normalize(out, p=2.0, dim=-1) if self.normalize else out


def gin(self, x, edge_index, size=None):
    out = _aggregated(self, x, edge_index, size)
    return None if out is None else self.nn(out + (1 + self.eps) * x)


LAYERS = {"GCNConv": gcn, "SAGEConv": sage, "GINConv": gin}
