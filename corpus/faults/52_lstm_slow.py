import os
from dataclasses import dataclass
import torch
from torch import nn

SEED = int(os.environ.get("SEED", 0))


@dataclass
class HParams:
    hidden: int = 32
    window: int = 16
    batch: int = 32
    lr: float = 1e-5
    steps: int = 400


def series(n, gen):
    t = torch.arange(n).float()
    return torch.sin(t / 4) + 0.4 * torch.sin(t / 1.7) + 0.1 * torch.randn(n, generator=gen)


class LSTMForecast(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.lstm = nn.LSTM(input_size=1, hidden_size=hidden, batch_first=True)
        self.fc = nn.Linear(hidden, 1)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1, :])


def main():
    hp = HParams()
    torch.manual_seed(SEED)
    gen = torch.Generator().manual_seed(SEED)
    data = series(2000, gen)
    data = (data - data.mean()) / data.std()
    windows = data.unfold(0, hp.window + 1, 1)
    model = LSTMForecast(hp.hidden)
    criterion = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=hp.lr)
    avg = 0.0
    for step in range(1, hp.steps + 1):
        w = windows[torch.randint(0, len(windows), (hp.batch,), generator=gen)]
        loss = criterion(model(w[:, :-1, None]), w[:, -1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        avg += loss.item() / 50
        if step % 50 == 0:
            print(f"[{step}/{hp.steps}] loss: {avg:.4f}")
            avg = 0.0


main()
