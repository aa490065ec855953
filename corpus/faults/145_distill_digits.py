"""Knowledge distillation on digits: a wide teacher, a small student."""
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(message)s")


class Params:
    alpha = 0.95
    temperature = 4
    learning_rate = 3e-3
    batch_size = 32
    num_epochs = 8
    teacher_epochs = 5


class RunningAverage:
    def __init__(self):
        self.steps, self.total = 0, 0.0

    def update(self, val):
        self.total += val
        self.steps += 1

    def __call__(self):
        return self.total / float(self.steps)


def net(width):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def loss_fn_kd(outputs, labels, teacher_outputs, params):
    alpha, T = params.alpha, params.temperature
    return nn.KLDivLoss(reduction="batchmean")(F.log_softmax(outputs / T, dim=1), F.softmax(teacher_outputs / T, dim=1)) * (alpha * T * T) + \
        F.cross_entropy(outputs, labels) * (1. - alpha)


def fetch_teacher_outputs(teacher_model, dataloader):
    """run the teacher once over the training set"""
    teacher_model.eval()
    teacher_outputs = []
    with torch.no_grad():
        for i, (data_batch, labels_batch) in enumerate(dataloader):
            teacher_outputs.append(teacher_model(data_batch))
    return teacher_outputs


def evaluate(model, dataloader):
    model.eval()
    with torch.no_grad():
        hits = sum((model(x).argmax(1) == y).sum().item() for x, y in dataloader)
    return hits / len(dataloader.dataset)


def train_teacher(model, dataloader, params):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(params.teacher_epochs):
        for x, y in dataloader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def train_kd(model, teacher_outputs, optimizer, dataloader, params):
    model.train()
    loss_avg = RunningAverage()
    for i, (train_batch, labels_batch) in enumerate(dataloader):
        output_batch = model(train_batch)
        output_teacher_batch = teacher_outputs[i]
        loss = loss_fn_kd(output_batch, labels_batch, output_teacher_batch, params)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_avg.update(loss.item())
    return loss_avg()


if __name__ == "__main__":
    torch.manual_seed(230)
    params = Params()
    d = load_digits()
    x = torch.tensor(d.data, dtype=torch.float32) / 8 - 1
    y = torch.tensor(d.target)
    perm = torch.randperm(len(x))
    train_dl = DataLoader(TensorDataset(x[perm[:1408]], y[perm[:1408]]), batch_size=params.batch_size, shuffle=True)
    dev_dl = DataLoader(TensorDataset(x[perm[1408:]], y[perm[1408:]]), batch_size=128)

    teacher_model = net(128)
    train_teacher(teacher_model, train_dl, params)
    logging.info("teacher accuracy %.3f", evaluate(teacher_model, dev_dl))

    teacher_outputs = fetch_teacher_outputs(teacher_model, train_dl)
    model = net(24)
    optimizer = torch.optim.Adam(model.parameters(), lr=params.learning_rate)
    for epoch in range(params.num_epochs):
        loss = train_kd(model, teacher_outputs, optimizer, train_dl, params)
        logging.info("epoch %d  loss %.4f  dev accuracy %.3f", epoch + 1, loss, evaluate(model, dev_dl))
