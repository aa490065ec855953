"""How the contrastive task becomes BYOL (Grill et al. 2020): a target that follows, and a predictor before it."""

from __future__ import annotations

BYOL = (
    (
        "    encoder = Encoder()\n",
        (
            "    encoder = Encoder()\n"
            '    target = __import__("copy").deepcopy(encoder)\n'
            "    predictor = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))\n"
        ),
    ),
    ("Adam(encoder.parameters(), lr=2e-3)", "Adam([*encoder.parameters(), *predictor.parameters()], lr=2e-3)"),
    (
        "        z1, z2 = encoder(augment(x)), encoder(augment(x))\n        loss = nt_xent(z1, z2)\n",
        (
            "        p = predictor(encoder(augment(x)))\n"
            "        with torch.no_grad():\n"
            "            z = target(augment(x))\n"
            "        loss = 2 - 2 * F.cosine_similarity(p, z, dim=1).mean()\n"
        ),
    ),
    (
        "        optimizer.step()\n",
        (
            "        optimizer.step()\n"
            "        with torch.no_grad():\n"
            "            for a, b in zip(target.parameters(), encoder.parameters()):\n"
            "                a.lerp_(b, 0.02)\n"
        ),
    ),
)
BATCH_NORMS = (
    ("nn.Linear(64, dim), nn.ReLU()", "nn.Linear(64, dim), nn.BatchNorm1d(dim), nn.ReLU()"),
    ("nn.Linear(dim, dim), nn.ReLU()", "nn.Linear(dim, dim), nn.BatchNorm1d(dim), nn.ReLU()"),
    ("nn.Linear(dim, out)", "nn.Sequential(nn.Linear(dim, out), nn.BatchNorm1d(out, affine=False))"),
    ("nn.Linear(16, 32), nn.ReLU()", "nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU()"),
)
