"""Regress the orientation of an object (unit quaternion) from projected key points."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)
POINTS = torch.randn(10, 3)


def quat_to_matrix(q):
    w, x, y, z = q.unbind(-1)
    return torch.stack([
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1).view(*q.shape[:-1], 3, 3)


def geodesic_distance(q_pred, q_true):
    """angle in radians between two rotations"""
    dot = (q_pred * q_true).sum(-1).abs()
    dot = torch.clamp(dot, min=-1, max=1)
    return 2 * torch.acos(dot)


class PoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.head = nn.Linear(128, 4)

    def forward(self, pts):
        return F.normalize(self.head(self.net(pts)), dim=-1)


def batch(n):
    # moderate rotations around the canonical view
    axis = F.normalize(torch.randn(n, 3), dim=-1)
    angle = torch.rand(n, 1) * 1.2
    q = torch.cat([torch.cos(angle / 2), torch.sin(angle / 2) * axis], -1)
    proj = (POINTS @ quat_to_matrix(q).transpose(1, 2))[..., :2]
    return proj.flatten(1), q


model = PoseNet()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for it in range(600):
    x, q = batch(256)
    loss = geodesic_distance(model(x), q).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for g in optimizer.param_groups:
        g["lr"] = 2e-3 * (1 - it / 600)
    if it % 50 == 49:
        print("iter %d  mean angle %.3f deg" % (it + 1, loss.item() * 57.29578))
