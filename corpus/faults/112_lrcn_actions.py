import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import TensorDataset, DataLoader

torch.manual_seed(3)
ACTIONS = ['left', 'right', 'up', 'down', 'grow', 'shrink', 'blink', 'still']


def make_clips(n, frames=6, size=14):
    g = torch.Generator().manual_seed(n)
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing='ij')
    clips, labels = [], []
    for i in range(n):
        k = i % len(ACTIONS)
        cx, cy = (4 + 5 * torch.rand(2, generator=g)).tolist()
        r, speed = 1.8, 0.7 + 0.3 * torch.rand(1, generator=g).item()
        clip = []
        for t in range(frames):
            x = cx + (t - 2.5) * speed * {0: -1, 1: 1}.get(k, 0)
            y = cy + (t - 2.5) * speed * {2: -1, 3: 1}.get(k, 0)
            rad = r + (t - 2.5) * 0.4 * {4: 1, 5: -1}.get(k, 0)
            amp = float(t % 2) if k == 6 else 1.0
            frame = amp * torch.exp(-((xx - x) ** 2 + (yy - y) ** 2) / (2 * rad ** 2))
            clip.append(frame + 0.1 * torch.randn(size, size, generator=g))
        clips.append(torch.stack(clip).unsqueeze(1))
        labels.append(k)
    clips = torch.stack(clips)
    return (clips - 0.12) / 0.25, torch.tensor(labels)


class ConvLstm(nn.Module):
    def __init__(self, latent_dim, hidden_size, lstm_layers, bidirectional, n_class):
        super(ConvLstm, self).__init__()
        self.conv_model = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(24 * 9, latent_dim))
        self.Lstm = nn.LSTM(latent_dim, hidden_size, lstm_layers, batch_first=True, bidirectional=bidirectional)
        self.output_layer = nn.Sequential(
            nn.Linear(2 * hidden_size if bidirectional else hidden_size, n_class),
            nn.Softmax(dim=-1)
        )

    def forward(self, x):
        batch_size, timesteps, channel_x, h_x, w_x = x.shape
        conv_input = x.view(batch_size * timesteps, channel_x, h_x, w_x)
        conv_output = self.conv_model(conv_input)
        lstm_input = conv_output.view(batch_size, timesteps, -1)
        lstm_output, _ = self.Lstm(lstm_input)
        return self.output_layer(lstm_output[:, -1, :])


def main():
    xtr, ytr = make_clips(480)
    xte, yte = make_clips(160)
    train_dataloader = DataLoader(TensorDataset(xtr, ytr), batch_size=16, shuffle=True)
    test_dataloader = DataLoader(TensorDataset(xte, yte), batch_size=32)
    model = ConvLstm(latent_dim=32, hidden_size=32, lstm_layers=1, bidirectional=False, n_class=len(ACTIONS))
    loss_function = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(12):
        model.train()
        train_loss, train_acc = 0., 0.
        for local_images, local_labels in train_dataloader:
            optimizer.zero_grad()
            output = model(local_images)
            loss = loss_function(output, local_labels)
            loss.backward()
            optimizer.step()
            train_loss += loss.item() / len(train_dataloader)
            train_acc += (output.argmax(1) == local_labels).float().mean().item() / len(train_dataloader)
        model.eval()
        correct = 0
        with torch.no_grad():
            for local_images, local_labels in test_dataloader:
                correct += (model(local_images).argmax(1) == local_labels).sum().item()
        print('epoch %d  train loss %.4f  train acc %.3f  test acc %.3f' % (
            epoch, train_loss, train_acc, correct / len(yte)))


if __name__ == '__main__':
    main()
