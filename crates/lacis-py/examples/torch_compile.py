"""Patched layers inside ``torch.compile(fullgraph=True)``: the same numbers, no graph break, and
both programs' times."""

import shutil
import statistics
import sys
import time

import lacis
import torch
from torch_geometric.nn import GCNConv

if shutil.which("c++") is None and shutil.which("g++") is None:
    print("skipped: torch.compile needs a C++ compiler, and there is none here")
    sys.exit(0)
if torch.__version__ < (2, 6):
    print("skipped: this torch does not compile PyG's layers as one graph, patched or not")
    sys.exit(0)

NODES, EDGES, TURNS = 20_000, 300_000, 7
torch.manual_seed(0)
x, edge_index = torch.randn(NODES, 32), torch.randint(0, NODES, (2, EDGES))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(32, 32), GCNConv(32, 8)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def step(net):
    start = time.perf_counter()
    out = net(x, edge_index)
    out.square().mean().backward()
    return out.detach(), time.perf_counter() - start


net = Net()
plain = torch.compile(net, fullgraph=True)
expected, _ = step(plain)
torch._dynamo.reset()  # or the patched layers would find what was compiled of the others

lacis.patch()
other = Net()
other.load_state_dict(net.state_dict())
patched = torch.compile(other, fullgraph=True)
found, seconds = step(patched)
print(f"compiled in {seconds:.1f} s, largest difference {(found - expected).abs().max():.1e}")
torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)

times = {"patched": [step(patched)[1] for _ in range(TURNS)]}
lacis.unpatch()
torch._dynamo.reset()
plain = torch.compile(net, fullgraph=True)
step(plain)
times["not patched"] = [step(plain)[1] for _ in range(TURNS)]
for name, taken in times.items():
    print(f"{name}: {statistics.median(taken) * 1e3:.1f} ms a step")
