"""Semi-supervised digits: a student learns from few labels and from a teacher that is its moving average."""

import argparse
import copy

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn


def make_net():
    return nn.Sequential(
        nn.Linear(64, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(64, 10),
    )


@torch.no_grad()
def update_teacher(student, teacher, momentum):
    for p_s, p_t in zip(student.parameters(), teacher.parameters()):
        p_t.mul_(momentum).add_(p_s, alpha=1 - momentum)
    for b_s, b_t in zip(student.buffers(), teacher.buffers()):
        b_t.copy_(b_s)


def noisy(x):
    return x + 0.1 * torch.randn_like(x)


def accuracy(net, x, y):
    net.eval()
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    x_lab, y_lab, x_unl = x[:300], y[:300], x[300:1500]
    x_test, y_test = x[1500:], y[1500:]

    student = make_net()
    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
    for step in range(200):
        student.train()
        teacher.eval()
        i, j = torch.randint(0, len(x_lab), (32,)), torch.randint(0, len(x_unl), (64,))
        logits = student(noisy(torch.cat([x_lab[i], x_unl[j]])))
        with torch.no_grad():
            target = F.softmax(teacher(noisy(x_unl[j])), dim=1)
        supervised = F.cross_entropy(logits[:32], y_lab[i])
        consistency = F.mse_loss(F.softmax(logits[32:], dim=1), target)
        loss = supervised + min(1.0, step / 50) * 5.0 * consistency
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_teacher(student, teacher, momentum=0.95)
        if step % 50 == 49:
            print(
                step, f"student {accuracy(student, x_test, y_test):.3f} teacher {accuracy(teacher, x_test, y_test):.3f}"
            )


main()
