"""K-fold ensemble on breast cancer, several models in one process, averaged weights for the last epochs of each fold."""
import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedKFold
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

torch.manual_seed(0)
bc = load_breast_cancer()
scores = []
for fold, (tr, te) in enumerate(StratifiedKFold(4, shuffle=True, random_state=0).split(bc.data, bc.target)):
    mu, sd = bc.data[tr].mean(0), bc.data[tr].std(0)
    x = torch.tensor((bc.data - mu) / sd, dtype=torch.float32)
    y = torch.tensor(bc.target, dtype=torch.float32)
    net = nn.Sequential(nn.Linear(30, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    swa, swa_sched = AveragedModel(net), SWALR(opt, swa_lr=0.02, anneal_epochs=2)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x[tr], y[tr]), 32, shuffle=True, drop_last=True)
    for epoch in range(12):
        net.train()
        for xb, yb in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(net(xb).squeeze(1), yb)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
        if epoch >= 7:
            swa.update_parameters(net)
            swa_sched.step()
    update_bn(loader, swa)
    swa.eval()
    with torch.no_grad():
        acc = ((swa(x[te]).squeeze(1) > 0).float() == y[te]).float().mean().item()
    scores.append(acc)
    print(f"fold {fold} loss {loss.item():.4f} acc {acc:.4f}")
print("mean", round(float(np.mean(scores)), 4))
