"""As much of Lightning as the example needs, for where it is not installed: modules, and a trainer
that calls their steps as Lightning's does."""

import torch


class LightningModule(torch.nn.Module):
    pass


class Trainer:
    def __init__(self, max_epochs, **_):
        self.max_epochs = max_epochs

    def fit(self, module, loader):
        optimizer = module.configure_optimizers()
        module.train()
        for _ in range(self.max_epochs):
            for number, batch in enumerate(loader):
                loss = module.training_step(batch, number)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
