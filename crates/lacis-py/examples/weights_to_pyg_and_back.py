"""Weights trained by Lacis in a PyG model, and a PyG model's weights back in Lacis."""

import lacis
import numpy as np
import torch
from torch_geometric.nn import GCN

graph = lacis.load_graph("sbm:n=1000,e=8000,classes=4,features=16,seed=3")
run = lacis.train(graph, model="gcn", hidden=32, epochs=30, seed=1)

# There: the names are those of torch_geometric.nn.models.
data = graph.to_pyg()
network = GCN(graph.num_features, 32, num_layers=2, out_channels=graph.num_classes)
network.load_state_dict({name: torch.from_numpy(value)
                         for name, value in run.model.state_dict().items()})
network.eval()
with torch.no_grad():
    theirs = network(data.x, data.edge_index, data.get("edge_weight")).numpy()
ours = run.model.predict(graph, what="logits")
print(f"largest difference of logits: {np.abs(theirs - ours).max():.1e}")
np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-4)

# A few more epochs in PyG, and back.
network.train()
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
for _ in range(10):
    optimizer.zero_grad()
    out = network(data.x, data.edge_index, data.get("edge_weight"))
    torch.nn.functional.cross_entropy(out, data.y).backward()
    optimizer.step()
network.eval()
with torch.no_grad():
    theirs = network(data.x, data.edge_index, data.get("edge_weight")).numpy()
run.model.load_state_dict(network.state_dict())
ours = run.model.predict(graph, what="logits")
np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-4)
print(f"and back: {np.abs(theirs - ours).max():.1e}")
