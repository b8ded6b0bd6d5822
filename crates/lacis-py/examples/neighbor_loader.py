"""Mini-batches of sampled neighbourhoods with threads instead of worker processes.

Needs neither pyg-lib nor torch-sparse.
"""

import lacis
import torch
from torch_geometric.nn import GraphSAGE

torch.manual_seed(0)
data = lacis.load_graph("sbm:n=5k,e=50k,classes=5,features=32,seed=1").to_pyg()
if "train_mask" not in data:
    data.train_mask = torch.rand(data.num_nodes) < 0.6

lacis.patch()
loader = lacis.loader.NeighborLoader(data, num_neighbors=[10, 5], input_nodes=data.train_mask,
                                     batch_size=256, shuffle=True, num_workers=2)
model = GraphSAGE(data.num_features, 32, num_layers=2, out_channels=int(data.y.max()) + 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for epoch in range(1, 4):
    total = 0.0
    for batch in loader:
        optimizer.zero_grad()
        # The first rows are the seeds; only they have a loss.
        out = model(batch.x, batch.edge_index)[:batch.batch_size]
        loss = torch.nn.functional.cross_entropy(out, batch.y[:batch.batch_size])
        loss.backward()
        optimizer.step()
        total += loss.item() * batch.batch_size
    print(f"epoch {epoch}: loss {total / int(data.train_mask.sum()):.4f}")

model.eval()
with torch.no_grad():
    right = model(data.x, data.edge_index).argmax(1) == data.y
print(f"accuracy of the nodes that did not train: {right[~data.train_mask].float().mean():.3f}")
