import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from sklearn.datasets import load_digits

SEED = int(os.environ.get("SEED", 0))


class LitModule(nn.Module):
    def __init__(self, steps_per_epoch, max_epochs, max_lr=0.2):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.total_steps, self.max_lr = steps_per_epoch * max_epochs, max_lr

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        return (self.net(x).argmax(1) == y).float().mean()

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=self.max_lr)
        sch = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=self.max_lr, total_steps=self.total_steps, div_factor=1000)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sch, "interval": "epoch"}}


class Trainer:
    def __init__(self, max_epochs):
        self.max_epochs, self.global_step = max_epochs, 0

    def fit(self, module, train_loader, val_loader):
        conf = module.configure_optimizers()
        opt, sch = conf["optimizer"], conf["lr_scheduler"]
        for epoch in range(self.max_epochs):
            module.train()
            logged = []
            for i, batch in enumerate(train_loader):
                loss = module.training_step(batch, i)
                opt.zero_grad()
                loss.backward()
                opt.step()
                self.global_step += 1
                logged.append(loss.item())
                if sch["interval"] == "step":
                    sch["scheduler"].step()
            if sch["interval"] == "epoch":
                sch["scheduler"].step()
            module.eval()
            with torch.no_grad():
                acc = torch.stack([module.validation_step(b, i) for i, b in enumerate(val_loader)]).mean().item()
            print(f"epoch={epoch} step={self.global_step} train_loss={sum(logged) / len(logged):.4f} val_acc={acc:.3f}")


torch.manual_seed(SEED)
d = load_digits()
x = torch.tensor(d.data, dtype=torch.float32) / 16
y = torch.tensor(d.target)
train_loader = DataLoader(TensorDataset(x[:1440], y[:1440]), batch_size=32, shuffle=True)
val_loader = DataLoader(TensorDataset(x[1440:], y[1440:]), batch_size=51)
Trainer(10).fit(LitModule(len(train_loader), 10), train_loader, val_loader)
