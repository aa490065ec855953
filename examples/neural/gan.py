"""Train the two networks of gan.neural against each other: `neural debug examples/neural/gan.py`."""

from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

import neural

torch.manual_seed(0)
file = Path(__file__).with_name("gan.neural")
generator = neural.build(file, "Generator")
discriminator = neural.build(file, "Discriminator")  # gives logits: its loss takes the sigmoid

images = torch.tensor(load_digits().data, dtype=torch.float32) / 16
batches = DataLoader(TensorDataset(images), batch_size=64, shuffle=True, drop_last=True)
real, fake = torch.ones(64, 1), torch.zeros(64, 1)
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))

for epoch in range(10):
    for (batch,) in batches:
        made = generator(torch.randn(64, 8))

        discriminator_optimizer.zero_grad()
        right = binary_cross_entropy_with_logits(discriminator(batch), real)
        wrong = binary_cross_entropy_with_logits(discriminator(made.detach()), fake)
        (right + wrong).backward()
        discriminator_optimizer.step()

        generator_optimizer.zero_grad()
        fooled = binary_cross_entropy_with_logits(discriminator(made), real)
        fooled.backward()
        generator_optimizer.step()
    print(f"epoch {epoch}: discriminator {(right + wrong).item():.3f}, generator {fooled.item():.3f}")
