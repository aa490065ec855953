"""Nodes of a graph of four communities: message passing with mean aggregation, a part of the nodes is labelled."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def make_graph(n=240, classes=4):
    labels = torch.arange(n) % classes
    same = labels[:, None] == labels[None, :]
    chance = torch.where(same, 0.08, 0.01)
    upper = torch.triu(torch.rand(n, n) < chance, diagonal=1).float()
    adj = upper + upper.t()
    features = torch.randn(n, 16)
    features[:, :classes] += 0.8 * F.one_hot(labels, classes).float()
    return features, adj, labels


class GraphLayer(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.self_lin = nn.Linear(n_in, n_out)
        self.neigh_lin = nn.Linear(n_in, n_out)

    def forward(self, x, adj):
        degree = adj.sum(1, keepdim=True).clamp(min=1)
        neighbours = adj @ x / degree
        return self.self_lin(x) + self.neigh_lin(neighbours)


class GraphNet(nn.Module):
    def __init__(self, n_in, n_hidden, n_classes):
        super().__init__()
        self.gc1 = GraphLayer(n_in, n_hidden)
        self.gc2 = GraphLayer(n_hidden, n_hidden)
        self.out = nn.Linear(n_hidden, n_classes)

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.relu(self.gc2(x, adj))
        return self.out(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    torch.manual_seed(parser.parse_args().seed)
    features, adj, labels = make_graph()
    train_mask = torch.rand(len(labels)) < 0.6
    model = GraphNet(features.size(1), 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)

    def test():
        model.eval()
        with torch.no_grad():
            right = model(features, adj).argmax(1) == labels
        return right[~train_mask].float().mean().item()

    for epoch in range(120):
        model.train()
        optimizer.zero_grad()
        out = model(features, adj)
        loss = F.cross_entropy(out[train_mask], labels[train_mask])
        loss.backward()
        optimizer.step()
        if epoch % 30 == 0:
            print(f"epoch {epoch:3d} loss {loss.item():.3f} test {test():.3f}")


main()
