"""Failures of which no cause of the taxonomy is true: something may be said to be wrong, not why."""

from tests.faults.injectors.fault import fine, odd

_SGD = (
    "\n"
    "\n"
    "class MySGD({base}):\n"
    "    def __init__(self, params, lr):\n"
    '        super().__init__(params, {{"lr": lr}})\n'
    "\n"
    "    @torch.no_grad()\n"
    "    def step(self):\n"
    "        for group in self.param_groups:\n"
    '            for p in group["params"]:\n'
    "                {update}\n"
    "\n"
    "\n"
)

EDITS = (
    odd(
        "house_own_optimizer_wrong_sign",
        "house",
        (
            "\n\nclass PriceNet(nn.Module):",
            _SGD.format(base="torch.optim.Optimizer", update='p.add_(group["lr"] * p.grad)')
            + "class PriceNet(nn.Module):",
        ),
        ("torch.optim.Adam(model.parameters(), lr=3e-3)", "MySGD(model.parameters(), lr=3e-2)"),
    ),
    odd(
        "autoencoder_own_optimizer_of_signs",
        "autoencoder",
        (
            "\n\nclass Autoencoder(nn.Module):",
            _SGD.format(
                base="optim.Optimizer", update='p.add_(group["lr"] * torch.randn_like(p).sign() * p.grad.norm())'
            )
            + "class Autoencoder(nn.Module):",
        ),
        ("optim.Adam(model.parameters(), lr=lr)", "MySGD(model.parameters(), lr=lr)"),
    ),
    odd(
        "graph_weights_overwritten_by_old_ones",
        "graph",
        (
            "        optimizer.step()\n",
            (
                "        optimizer.step()\n"
                "        if epoch % 10 == 9:\n"
                "            for m in model.modules():\n"
                "                if isinstance(m, nn.Linear):\n"
                "                    m.reset_parameters()\n"
            ),
        ),
    ),
    fine(
        "digits_mlp_bug_in_the_metric_only",
        "digits_mlp",
        ("predicted = model(images).argmax(dim=1)", "predicted = model(images).argmin(dim=1)"),
    ),
    fine("rows_metric_divided_twice", "rows_lstm", (".float().mean()", ".float().mean() / 297")),
    odd(
        "house_loss_of_nonsense",
        "house",
        (
            "        loss = criterion(pred, yb)\n",
            "        loss = (pred.sort().values - yb.sort().values).pow(2).mean()\n",
        ),
        verdict=("failing", "suspect", "inconclusive", "healthy"),
    ),
    odd(
        "simclr_loss_of_norms",
        "simclr",
        (
            "        loss = nt_xent(z1, z2)\n",
            "        loss = (z1.norm(dim=1) - z2.norm(dim=1)).abs().mean() - z1.norm(dim=1).mean()\n",
        ),
        verdict=("failing", "suspect", "inconclusive", "healthy"),
    ),
    odd(
        "policy_rewards_of_another_world",
        "policy",
        (
            "        state, reward, done = env.step(action)\n",
            "        state, reward, done = env.step(action)\n        reward = torch.randn_like(reward)\n",
        ),
        verdict=("failing", "suspect", "inconclusive", "healthy"),
    ),
    odd(
        "finetune_missing_file",
        "finetune",
        ('print("fine-tuning")\n', 'print("fine-tuning")\nopen("no-such-checkpoint.pt")\n'),
        verdict="failing",
        raises=True,
    ),
    # The loss itself is multiplied by 300: it jumps with it, and divided by 300 it goes on falling. Adam's memory lags,
    # and what harm that does nobody can see.
    odd(
        "tagger_beta2_and_sudden_gradients",
        "tagger",
        ("lr=6e-3)", "lr=6e-3, betas=(0.9, 0.99999))"),
        (
            "        loss = criterion(logits.reshape(-1, TAGS), tags.reshape(-1))\n",
            (
                "        loss = criterion(logits.reshape(-1, TAGS), tags.reshape(-1))\n"
                "        if epoch >= 3:\n"
                "            loss = 300 * loss\n"
            ),
        ),
        verdict=("failing", "suspect", "inconclusive", "healthy"),
        tolerated="adam_second_moment_stale",
    ),
    odd(
        "gpt_batch_of_random_characters",
        "char_gpt",
        ("    return x, y\n", "    return torch.randint_like(x, len(chars)), torch.randint_like(y, len(chars))\n"),
        ("args.steps):", "80):"),
        tolerated=("label_noise", "target_misaligned"),
    ),
)
