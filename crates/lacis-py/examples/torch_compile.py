"""Patched layers inside ``torch.compile(fullgraph=True)``: the same numbers, no graph break."""

import shutil
import sys
import time

import lacis
import torch
from torch_geometric.nn import GCNConv

if shutil.which("c++") is None and shutil.which("g++") is None:
    print("skipped: torch.compile needs a C++ compiler, and there is none here")
    sys.exit(0)

lacis.patch()
torch.manual_seed(0)
x, edge_index = torch.randn(2_000, 32), torch.randint(0, 2_000, (2, 20_000))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(32, 32, cached=True), GCNConv(32, 8, cached=True)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


net = Net()
expected = net(x, edge_index)
compiled = torch.compile(net, fullgraph=True)
start = time.perf_counter()
found = compiled(x, edge_index)
print(f"compiled in {time.perf_counter() - start:.1f} s")
torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
found.sum().backward()
print(f"largest difference: {(found - expected).abs().max():.1e}")
