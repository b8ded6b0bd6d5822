"""The engine without torch: graphs from arrays, training, predictions, operators."""

import lacis
import numpy as np

rng = np.random.default_rng(0)

# Two communities: nodes of the same half are joined more often.
n = 2_000
side = np.arange(n) % 2
source = rng.integers(0, n, 20_000)
target = np.where(rng.random(20_000) < 0.85, source + 2 * rng.integers(1, 500, 20_000),
                  rng.integers(0, n, 20_000)) % n
x = rng.standard_normal((n, 16), dtype=np.float32) + 0.4 * side[:, None]

graph = lacis.Graph.from_edges([source, target], n, x=x, y=side, train_mask=np.arange(n) < 1000,
                               val_mask=np.arange(1000, 1400), test_mask=np.arange(1400, n))
print(graph)

run = lacis.train(graph, model="sage", hidden=32, epochs=50, seed=1)
print(run)
print("plan:", run.plan)
print("loss:", run.history["loss"][[0, 9, 49]])

labels = run.model.predict(graph)
print(f"predictions right: {np.mean(labels[1400:] == side[1400:]):.3f}")

# The operators by themselves.
mean = lacis.ops.spmm(graph, x, reduce="mean")
scores = lacis.ops.sddmm(graph, x, x)
weights = lacis.ops.edge_softmax(graph, scores)
print("mean of neighbours", mean.shape, "softmax over edges", weights.shape)
