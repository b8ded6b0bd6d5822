"""A Lightning module with patched layers: nothing in it knows of Lacis but the two lines."""

import sys

import lacis
import torch
from torch_geometric.nn import GCNConv

try:
    import lightning
except ImportError:
    print("skipped: Lightning is not installed (pip install lightning)")
    sys.exit(0)

lacis.patch()
torch.manual_seed(0)
data = lacis.load_graph("sbm:n=1000,e=8000,classes=4,features=16,seed=3").to_pyg()


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(16, 32), GCNConv(32, 4)

    def training_step(self, batch, _):
        out = self.second(self.first(batch.x, batch.edge_index).relu(), batch.edge_index)
        return torch.nn.functional.cross_entropy(out, batch.y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


trainer = lightning.Trainer(max_epochs=5, accelerator="cpu", logger=False,
                            enable_checkpointing=False, enable_progress_bar=False,
                            enable_model_summary=False)
loader = torch.utils.data.DataLoader([data], collate_fn=lambda items: items[0])
trainer.fit(Net(), loader)
print(lacis.report())
