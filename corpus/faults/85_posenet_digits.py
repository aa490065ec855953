import argparse
import time

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser(description='motion regression with a pose-net style encoder')
parser.add_argument('--epochs', default=9, type=int)
parser.add_argument('-b', '--batch-size', default=40, type=int)
parser.add_argument('--lr', default=1e-3, type=float)
parser.add_argument('--momentum', default=0.9, type=float)
parser.add_argument('--beta', default=0.999, type=float)
parser.add_argument('--weight-decay', '--wd', default=0.05, type=float)
parser.add_argument('--seed', default=0, type=int)


def conv(in_planes, out_planes, stride=1):
    return nn.Sequential(
        nn.Conv2d(in_planes, out_planes, kernel_size=3, padding=1, stride=stride),
        nn.ReLU(inplace=True)
    )


class PoseNet(nn.Module):
    def __init__(self, n_out=2):
        super(PoseNet, self).__init__()
        self.conv1 = conv(2, 16)
        self.conv2 = conv(16, 24, stride=2)
        self.conv3 = conv(24, 32)
        self.conv4 = conv(32, 48, stride=2)
        self.conv5 = conv(48, 48)
        self.conv6 = conv(48, 48)
        self.pose_pred = nn.Conv2d(48, n_out, kernel_size=1)

    def init_weights(self):
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.xavier_uniform_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, target_image, ref_image):
        out = torch.cat([target_image, ref_image], 1)
        out = self.conv4(self.conv3(self.conv2(self.conv1(out))))
        out = self.conv6(self.conv5(out))
        return 0.1 * self.pose_pred(out).mean(3).mean(2)


def make_pairs(images, rng):
    pairs, motion = [], []
    for im in images:
        canvas = np.zeros((12, 12), dtype=np.float32)
        canvas[2:10, 2:10] = im
        dy, dx = rng.randint(-2, 3, 2)
        pairs.append(np.stack([canvas, np.roll(canvas, (dy, dx), (0, 1))]))
        motion.append([dy / 1.414, dx / 1.414])
    return torch.tensor(np.array(pairs)), torch.tensor(np.array(motion), dtype=torch.float32)


def main():
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.RandomState(args.seed)
    images = load_digits().images.astype(np.float32)
    images = (images - images.mean()) / images.std()
    a, b = train_test_split(images, test_size=0.2, random_state=args.seed)
    train_x, train_y = make_pairs(a, rng)
    val_x, val_y = make_pairs(b, rng)

    pose_net = PoseNet()
    pose_net.init_weights()
    optimizer = torch.optim.Adam(pose_net.parameters(), args.lr,
                                 betas=(args.momentum, args.beta), weight_decay=args.weight_decay)
    for epoch in range(args.epochs):
        end = time.time()
        pose_net.train()
        losses = []
        for idx in torch.randperm(len(train_x)).split(args.batch_size):
            pose = pose_net(train_x[idx, :1], train_x[idx, 1:])
            loss = ((pose - train_y[idx]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        pose_net.eval()
        with torch.no_grad():
            err = ((pose_net(val_x[:, :1], val_x[:, 1:]) - val_y) ** 2).mean().item()
        print('epoch %d train %.4f valid %.4f (%.1fs)' % (epoch, np.mean(losses), err, time.time() - end))


if __name__ == '__main__':
    main()
