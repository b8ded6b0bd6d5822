"""The fused layers: each computes what torch_geometric's own forward does, or declines."""

from . import attention, hops, sums

# Class in torch_geometric.nn.conv -> (forward, the methods that must be torch_geometric's own).
_MESSAGE = ("message", "aggregate", "message_and_aggregate", "update", "propagate")
_EDGES = _MESSAGE + ("edge_update", "edge_updater")

LAYERS = {
    "GCNConv": (sums.gcn, _MESSAGE),
    "SAGEConv": (sums.sage, _MESSAGE),
    "GINConv": (sums.gin, _MESSAGE),
    "GraphConv": (sums.graph, _MESSAGE),
    "SGConv": (hops.sg, _MESSAGE),
    "TAGConv": (hops.tag, _MESSAGE),
    "ChebConv": (hops.cheb, _MESSAGE + ("__norm__",)),
    "APPNP": (hops.appnp, _MESSAGE),
    "GCN2Conv": (hops.gcn2, _MESSAGE),
    "GATConv": (attention.gat, _EDGES),
    "GATv2Conv": (attention.gatv2, _EDGES),
    "TransformerConv": (attention.transformer, _MESSAGE),
}
