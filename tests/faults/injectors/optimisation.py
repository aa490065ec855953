"""The optimizer's numbers do not fit."""

from tests.faults.injectors.fault import fault

EDITS = (
    # ------------------------------------------------------------ lr_too_high
    fault("house_lr_1", "house", "lr_too_high", ("lr=3e-3", "lr=1.0"), step=0),
    fault("cnn_lr_3", "digits_cnn", "lr_too_high", ("lr=2e-3", "lr=3.0"), step=0),
    fault(
        "gpt_lr_1",
        "char_gpt",
        "lr_too_high",
        ("max_lr = 6e-3", "max_lr = 1.0"),
        ("warmup = 20\n", "warmup = 2\n"),
        step=0,
    ),
    fault("rows_lr_2", "rows_lstm", "lr_too_high", ("lr=5e-3", "lr=2.0"), step=0),
    fault("vae_lr_1", "vae", "lr_too_high", ("lr=2e-3", "lr=1.0"), step=0),
    fault("accumulate_lr_20", "accumulate", "lr_too_high", ("lr=0.1", "lr=20.0"), step=0),
    # ------------------------------------------------------------ lr_too_low
    fault("house_lr_1e_7", "house", "lr_too_low", ("lr=3e-3", "lr=1e-7"), step=0),
    fault("digits_mlp_lr_1e_6", "digits_mlp", "lr_too_low", ("lr=0.05", "lr=1e-6"), step=0),
    fault("gpt_lr_3e_8", "char_gpt", "lr_too_low", ("max_lr = 6e-3", "max_lr = 3e-8"), step=0),
    fault("tagger_lr_1e_7", "tagger", "lr_too_low", ("lr=6e-3", "lr=1e-7"), step=0),
    # ------------------------------------------------------------ warmup_missing
    fault(
        "gpt_post_norm_without_warmup",
        "char_gpt",
        "warmup_missing",
        ("warmup = 20\n", "warmup = 0\n"),
        ("n_layer = 2\n", "n_layer = 6\n"),
        ("max_lr = 6e-3", "max_lr = 1e-2"),
        ("betas=(0.9, 0.95)", "betas=(0.9, 0.98)"),
        ("args.steps):", "100):"),
        (
            "        x = x + self.attn(self.ln_1(x))\n        x = x + self.mlp(self.ln_2(x))\n",
            "        x = self.ln_1(x + self.attn(x))\n        x = self.ln_2(x + self.mlp(x))\n",
        ),
        step=0,
    ),
    # ------------------------------------------------------------ adam_epsilon
    fault("simclr_eps_10", "simclr", "adam_epsilon", ("lr=2e-3)", "lr=2e-3, eps=10.0)"), step=0),
    fault("gpt_eps_1", "char_gpt", "adam_epsilon", ("betas=(0.9, 0.95),", "betas=(0.9, 0.95),\n    eps=1.0,"), step=0),
    fault(
        "mixed_half_weights_eps",
        "mixed",
        "adam_epsilon",
        ("    model = ResidualMLP()\n", "    model = ResidualMLP().half()\n"),
        ("x, y = data[idx], target[idx]", "x, y = data[idx].half(), target[idx]"),
        (
            (
                '        with torch.autocast("cpu", dtype=torch.float16):\n'
                "            logits = model(x)\n"
                "            loss = F.cross_entropy(logits, y)\n"
                "        scaler.scale(loss).backward()\n"
                "        scaler.unscale_(optimizer)\n"
            ),
            "        logits = model(x)\n        loss = F.cross_entropy(logits.float(), y)\n        loss.backward()\n",
        ),
        ("        scaler.step(optimizer)\n        scaler.update()\n", "        optimizer.step()\n"),
        ("torch.optim.AdamW(model.parameters(), lr=args.lr)", "torch.optim.Adam(model.parameters(), lr=args.lr)"),
        verdict="failing",
    ),
    # ------------------------------------------------------------ momentum_too_high
    fault("digits_mlp_momentum_0999", "digits_mlp", "momentum_too_high", ("momentum=0.9)", "momentum=0.999)"), step=0),
    fault("accumulate_momentum_0998", "accumulate", "momentum_too_high", ("momentum=0.9)", "momentum=0.998)"), step=0),
    # ------------------------------------------------------------ weight_decay_too_high
    fault(
        "digits_mlp_decay_1",
        "digits_mlp",
        "weight_decay_too_high",
        ("momentum=0.9)", "momentum=0.9, weight_decay=0.5)"),
        step=0,
    ),
    fault("cnn_decay_100", "digits_cnn", "weight_decay_too_high", ("weight_decay=1e-3", "weight_decay=100.0"), step=0),
    fault("graph_decay_1", "graph", "weight_decay_too_high", ("weight_decay=5e-4", "weight_decay=1.0"), step=0),
    fault("gpt_decay_50", "char_gpt", "weight_decay_too_high", ("weight_decay = 0.1", "weight_decay = 50.0"), step=0),
    # ------------------------------------------------------------ decay_on_norms
    # The groups are swapped. A decay of 3 on everything shrinks matrices and gains alike, and the model still learns.
    fault(
        "gpt_decays_its_norms",
        "char_gpt",
        "decay_on_norms",
        (
            '    [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}],\n',
            '    [{"params": decay, "weight_decay": 0.0}, {"params": no_decay, "weight_decay": weight_decay}],\n',
        ),
        ("weight_decay = 0.1", "weight_decay = 30.0"),
        step=0,
    ),
    # ------------------------------------------------------------ batch_too_small
    # ------------------------------------------------------------ gradient_conflict
    fault(
        "multitask_one_loss_drowns_the_rest",
        "multitask",
        "gradient_conflict",
        ("return digit_loss + ink_loss + loop_loss", "return digit_loss + 10000 * ink_loss + loop_loss"),
        step=0,
    ),
    # From here on its gradient is a thousand times that of the labels; a weight of 20,000 leaves it at 5 to 40 times,
    # and a third of the predictions right.
    fault(
        "teacher_consistency_drowns_labels",
        "mean_teacher",
        "gradient_conflict",
        ("min(1.0, step / 50) * 5.0 * consistency", "2000000.0 * consistency"),
        step=0,
    ),
    # The rate fits the larger batch: one fault seen from two sides.
    fault(
        "digits_mlp_batch_of_one",
        "digits_mlp",
        ("batch_too_small", "lr_too_high"),
        ("batch_size=50", "batch_size=1"),
        ("images[:1400], labels[:1400]", "images[:400], labels[:400]"),
        ("lr=0.05, momentum=0.9", "lr=0.02, momentum=0.9"),
        ("default=10", "default=1"),
        step=0,
    ),
    fault(
        "accumulate_two_samples",
        "accumulate",
        ("batch_too_small", "lr_too_high"),
        ("batch_size=16", "batch_size=2"),
        ("ACCUM_STEPS = 4", "ACCUM_STEPS = 1"),
        ("range(5)", "range(1)"),  # no step: it overshoots where an odd pair comes, at step 14 with seed 0
    ),
    # Reconstruction is drowned by the divergence, and the code collapses: the first is why, the second how.
    fault(
        "vae_beta_1000",
        "vae",
        ("gradient_conflict", "mode_collapse"),
        ("return (bce + kld) / x.size(0)", "return (bce + 1000 * kld) / x.size(0)"),
        step=0,
    ),
)
