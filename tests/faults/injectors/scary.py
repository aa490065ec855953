"""Trainings that look faulty and are not: nothing may be blamed."""

from tests.faults.golden import EARLY
from tests.faults.injectors.byol import BATCH_NORMS, BYOL
from tests.faults.injectors.fault import fine

EDITS = (
    fine(
        "digits_mlp_label_smoothing",
        "digits_mlp",
        ("nn.CrossEntropyLoss()", "nn.CrossEntropyLoss(label_smoothing=0.2)"),
    ),
    fine(
        "digits_mlp_noisy_labels",
        "digits_mlp",
        (
            "    labels = torch.tensor(digits.target)\n",
            (
                "    labels = torch.tensor(digits.target)\n"
                "    wrong = torch.rand(len(labels)) < 0.1\n"
                "    labels[wrong] = torch.randint(0, 10, (int(wrong.sum()),))\n"
            ),
        ),
    ),
    fine(
        "digits_mlp_sum_with_fitting_lr",
        "digits_mlp",
        ("nn.CrossEntropyLoss()", 'nn.CrossEntropyLoss(reduction="sum")'),
        ("lr=0.05", "lr=0.001"),
    ),
    fine(
        "house_zero_grad_at_the_end",
        "house",
        ("        optimizer.zero_grad()\n", ""),
        ("        optimizer.step()\n", "        optimizer.step()\n        model.zero_grad()\n"),
    ),
    fine(
        "house_sgd_small_lr_is_enough",
        "house",
        ("torch.optim.Adam(model.parameters(), lr=3e-3)", "torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)"),
    ),
    fine(
        "house_clipped_always",
        "house",
        (
            "        loss.backward()\n",
            "        loss.backward()\n        nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n",
        ),
    ),
    fine(
        "house_prices_in_log",
        "house",
        ("price = 2.1", "price = 300 + 2.1"),
        (
            (
                "y_mean, y_std = y_train.mean(), y_train.std()\n"
                "y_train, y_val = (y_train - y_mean) / y_std, (y_val - y_mean) / y_std\n"
            ),
            "y_train, y_val = np.log(np.maximum(y_train, 1)) - 6, np.log(np.maximum(y_val, 1)) - 6\n",
        ),
    ),
    fine(
        "cnn_one_cycle",
        "digits_cnn",
        (
            "torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=epochs)",
            "torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 2e-2, epochs * len(train_loader))",
        ),
        (
            "            self.optimizer.step()\n",
            "            self.optimizer.step()\n            self.scheduler.step()\n",
        ),
        (
            "            train_loss = self.train_epoch()\n            self.scheduler.step()\n",
            "            train_loss = self.train_epoch()\n",
        ),
    ),
    fine(
        "cnn_heavy_augmentation",
        "digits_cnn",
        ("np.random.normal(0, 0.05, image.shape)", "np.random.normal(0, 0.8, image.shape)"),
    ),
    fine("cnn_dropout_half", "digits_cnn", ("nn.Dropout(0.25)", "nn.Dropout(0.5)")),
    fine(
        "cnn_workers",
        "digits_cnn",
        ("batch_size=48, shuffle=True, drop_last=True)", "batch_size=48, shuffle=True, drop_last=True, num_workers=2)"),
        ("epochs=6", "epochs=3"),
    ),
    fine("gpt_untied", "char_gpt", ("        self.lm_head.weight = self.wte.weight\n", "")),
    fine("gpt_high_peak", "char_gpt", ("max_lr = 6e-3", "max_lr = 2e-2")),
    fine(
        "gpt_flash_attention",
        "char_gpt",
        (
            (
                "        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))\n"
                '        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))\n'
                "        att = F.softmax(att, dim=-1)\n"
                "        y = att @ v\n"
            ),
            "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n",
        ),
    ),
    fine(
        "gpt_accumulates",
        "char_gpt",
        (
            (
                '    xb, yb = get_batch("train")\n'
                "    logits, loss = model(xb, yb)\n"
                "    optimizer.zero_grad(set_to_none=True)\n"
                "    loss.backward()\n"
            ),
            (
                "    optimizer.zero_grad(set_to_none=True)\n"
                "    for micro_step in range(3):\n"
                '        xb, yb = get_batch("train")\n'
                "        logits, loss = model(xb, yb)\n"
                "        (loss / 3).backward()\n"
            ),
        ),
        ("args.steps):", "90):"),
    ),
    fine(
        "gpt_bfloat16_autocast",
        "char_gpt",
        ("args.steps):", "80):"),
        (
            "    logits, loss = model(xb, yb)\n",
            '    with torch.autocast("cpu", dtype=torch.bfloat16):\n        logits, loss = model(xb, yb)\n',
        ),
    ),
    fine(
        "gpt_masked_language_model",
        "char_gpt",
        ('        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))\n', ""),
        (
            "    y = torch.stack([source[i + 1 : i + 1 + block_size] for i in ix])\n    return x, y\n",
            (
                "    hidden = torch.rand(x.shape) < 0.15\n"
                "    y = x.masked_fill(~hidden, -100)\n"
                "    return x.masked_fill(hidden, 0), y\n"
            ),
        ),
    ),
    fine(
        "gpt_adapters_only",
        "char_gpt",
        (
            "model = GPT(len(chars))\n",
            (
                "model = GPT(len(chars))\n"
                "\n"
                "\n"
                "class LoRALinear(nn.Module):\n"
                "    def __init__(self, base, rank=8):\n"
                "        super().__init__()\n"
                "        self.base = base\n"
                "        self.base.requires_grad_(False)\n"
                "        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) * 0.05)\n"
                "        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))\n"
                "\n"
                "    def forward(self, x):\n"
                "        return self.base(x) + x @ self.lora_a.t() @ self.lora_b.t()\n"
                "\n"
                "\n"
                "model.requires_grad_(False)\n"
                "for block in model.blocks:\n"
                "    block.attn.c_attn = LoRALinear(block.attn.c_attn)\n"
                "    block.mlp[0] = LoRALinear(block.mlp[0])\n"
                "model.lm_head.weight.requires_grad_(True)\n"
            ),
        ),
        (
            "[p for p in model.parameters() if p.dim() >= 2]",
            "[p for p in model.parameters() if p.dim() >= 2 and p.requires_grad]",
        ),
        (
            "[p for p in model.parameters() if p.dim() < 2]",
            "[p for p in model.parameters() if p.dim() < 2 and p.requires_grad]",
        ),
    ),
    fine(
        "rows_gru_stateful_detached",
        "rows_lstm",
        ("nn.LSTM(input_size", "nn.GRU(input_size"),
        (
            "out, (h_n, c_n) = self.lstm(x)",
            "first, h = self.lstm(x[:, :4])\n        out, h_n = self.lstm(x[:, 4:], h.detach())",
        ),
    ),
    fine(
        "rows_time_major_done_right",
        "rows_lstm",
        (", batch_first=True)", ")"),
        ("self.lstm(x)", "self.lstm(x.transpose(0, 1))"),
        ("last = out[:, -1, :]", "last = out[-1]"),
    ),
    fine(
        "rows_imbalance_weighted",
        "rows_lstm",
        ("y = torch.tensor(y, dtype=torch.long)\n", "y = torch.tensor(y == 8, dtype=torch.long)\n"),
        ("num_classes=10", "num_classes=2"),
        ("nn.CrossEntropyLoss()", "nn.CrossEntropyLoss(weight=torch.tensor([1.0, 9.0]))"),
    ),
    fine(
        "autoencoder_tiny_gradients",
        "autoencoder",
        ("F.mse_loss(recon, clean)", "F.mse_loss(recon, clean) * 1e-5"),
        ("lr=lr)", "lr=lr, eps=1e-15)"),
    ),
    fine(
        "autoencoder_sparse",
        "autoencoder",
        ("nn.Linear(48, n_code))", "nn.Linear(48, n_code), nn.ReLU())"),
        ("n_code=16", "n_code=96"),
        (
            "loss = F.mse_loss(recon, clean)",
            "loss = F.mse_loss(recon, clean) + 1e-4 * model.encoder(noisy).abs().mean()",
        ),
    ),
    fine(
        "autoencoder_straight_through",
        "autoencoder",
        ("recon = self.decoder(code)", "recon = self.decoder(code + (torch.round(code) - code).detach())"),
    ),
    fine(
        "autoencoder_spike_that_recovers",
        "autoencoder",
        (
            "        clean = sample_batch(images, 64)\n",
            "        clean = sample_batch(images, 64)\n        if step == 150:\n            clean = 1 - clean\n",
        ),
    ),
    fine(
        "autoencoder_tied_by_hand",
        "autoencoder",
        (
            "        recon = self.decoder(code)\n",
            "        recon = F.linear(torch.relu(F.linear(code, self.encoder[2].weight.t())), self.encoder[0].weight.t(), self.bias)\n",
        ),
        (
            "        self.decoder = nn.Sequential(nn.Linear(n_code, 48), nn.ReLU(), nn.Linear(48, 64))\n",
            "        self.bias = nn.Parameter(torch.zeros(64))\n",
        ),
    ),
    fine("vae_beta_4", "vae", ("return (bce + kld) / x.size(0)", "return (bce + 4 * kld) / x.size(0)")),
    fine(
        "vae_summed_over_the_batch",
        "vae",
        ("return (bce + kld) / x.size(0)", "return bce + kld"),
        ("lr=2e-3", "lr=1e-3"),
    ),
    fine(
        "gan_discriminator_frozen_in_its_turn",
        "gan_ring",
        ("    # generator: log(D(G(z)))\n", "    for p in netD.parameters():\n        p.requires_grad_(False)\n"),
        (
            "    optimizerG.step()\n",
            "    optimizerG.step()\n    for p in netD.parameters():\n        p.requires_grad_(True)\n",
        ),
    ),
    fine(
        "gan_two_timescales",
        "gan_ring",
        (
            "optimizerD = torch.optim.Adam(netD.parameters(), lr=1e-3",
            "optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-3",
        ),
        (
            "optimizerG = torch.optim.Adam(netG.parameters(), lr=1e-3",
            "optimizerG = torch.optim.Adam(netG.parameters(), lr=5e-4",
        ),
    ),
    fine(
        "policy_noisy_rewards",
        "policy",
        (
            "        state, reward, done = env.step(action)\n",
            (
                "        state, reward, done = env.step(action)\n"
                "        reward = reward + 0.5 * torch.randn_like(reward)\n"
            ),
        ),
        verdict=EARLY,
    ),
    fine(
        "policy_entropy_bonus",
        "policy",
        (
            "    loss = policy_loss + 0.5 * value_loss\n",
            "    loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()\n",
        ),
        verdict=EARLY,
    ),
    fine("simclr_cold", "simclr", ("temperature=0.2", "temperature=0.05")),
    fine(
        "simclr_batch_of_pairs",
        "simclr",
        (
            "z1, z2 = encoder(augment(x)), encoder(augment(x))",
            "z1, z2 = encoder(torch.cat([augment(x), augment(x)])).chunk(2)",
        ),
    ),
    # With batch norm in all three parts a linear probe on the codes goes from 0.68 to 0.88 in 200 steps; without it the
    # codes become one point (simclr_byol_without_norm among the faults).
    fine("simclr_byol", "simclr", *BYOL, *BATCH_NORMS),
    # Norms over images have 128 values of each channel even so: 0.93 of the test set in one epoch.
    fine(
        "cnn_batches_of_two",
        "digits_cnn",
        ("batch_size=48", "batch_size=2"),
        ("test_size=0.3", "test_size=0.3, train_size=400"),
        ("epochs=6", "epochs=1"),
    ),
    fine(
        "graph_dropout",
        "graph",
        ("        return self.out(x)\n", "        return self.out(F.dropout(x, 0.5, self.training))\n"),
    ),
    fine(
        "graph_residual_sixteen_rounds",
        "graph",
        (
            "        x = F.relu(self.gc2(x, adj))\n",
            "        for _ in range(6):\n            x = x + 0.3 * F.relu(self.gc2(x, adj))\n",
        ),
    ),
    fine(
        "multitask_uncertainty_weights",
        "multitask",
        (
            "        self.loop_head = nn.Linear(width, 1)\n",
            "        self.loop_head = nn.Linear(width, 1)\n        self.log_var = nn.Parameter(torch.zeros(3))\n",
        ),
        ("def compute_loss(out, batch):", "def compute_loss(out, batch, log_var):"),
        (
            "    return digit_loss + ink_loss + loop_loss\n",
            (
                "    losses = torch.stack([digit_loss, ink_loss, loop_loss])\n"
                "    return (torch.exp(-log_var) * losses + 0.5 * log_var).sum()\n"
            ),
        ),
        ("compute_loss(out, batch)\n        loss", "compute_loss(out, batch, model.log_var)\n        loss"),
    ),
    fine(
        "multitask_two_backwards",
        "multitask",
        ("    return digit_loss + ink_loss + loop_loss\n", "    return digit_loss, ink_loss + loop_loss\n"),
        (
            "        loss = compute_loss(out, batch)\n        loss.backward()\n",
            (
                "        first, loss = compute_loss(out, batch)\n"
                "        first.backward(retain_graph=True)\n"
                "        loss.backward()\n"
            ),
        ),
    ),
    fine(
        "finetune_all_with_small_lr",
        "finetune",
        (
            (
                "for p in model.backbone.parameters():\n"
                "    p.requires_grad = False\n"
                "model.backbone.eval()\n"
                "optimizer = torch.optim.Adam(model.head.parameters(), lr=5e-3)"
            ),
            (
                "optimizer = torch.optim.Adam(\n"
                '    [{"params": model.backbone.parameters(), "lr": 1e-4}, {"params": model.head.parameters(), "lr": 5e-3}]\n'
                ")"
            ),
        ),
    ),
    fine(
        "finetune_features_under_no_grad",
        "finetune",
        (
            "        return self.head(self.backbone(x))",
            (
                "        if not next(self.backbone.parameters()).requires_grad:\n"
                "            with torch.no_grad():\n"
                "                h = self.backbone(x)\n"
                "            return self.head(h)\n"
                "        return self.head(self.backbone(x))"
            ),
        ),
    ),
    fine(
        "accumulate_odd_last_group",
        "accumulate",
        ("if (i + 1) % ACCUM_STEPS == 0:", "if (i + 1) % ACCUM_STEPS == 0 or i + 1 == len(loader):"),
        ("ACCUM_STEPS = 4", "ACCUM_STEPS = 3"),
    ),
    fine(
        "accumulate_imbalanced_and_learnt",
        "accumulate",
        (
            "labels = torch.randint(0, 5, (1600,))",
            "labels = (torch.rand(1600) < 0.08).long() * torch.randint(1, 5, (1600,))",
        ),
    ),
    fine(
        "accumulate_half_labels_random",
        "accumulate",
        (
            "loader = DataLoader(",
            (
                "lucky = torch.rand(1600) < 0.4\n"
                "labels = torch.where(lucky, torch.randint(0, 5, (1600,)), labels)\n"
                "loader = DataLoader("
            ),
        ),
    ),
    fine("mixed_huge_initial_scale", "mixed", ("init_scale=1024.0", "init_scale=2.0**30")),
    fine(
        "mixed_bfloat16_without_scaler",
        "mixed",
        ("dtype=torch.float16", "dtype=torch.bfloat16"),
        ("        scaler.scale(loss).backward()\n        scaler.unscale_(optimizer)\n", "        loss.backward()\n"),
        ("        scaler.step(optimizer)\n        scaler.update()\n", "        optimizer.step()\n"),
    ),
    fine(
        "tagger_packed",
        "tagger",
        (
            "        h, _ = self.gru(self.embed(words))\n",
            (
                "        lengths = (~padding).sum(1)\n"
                "        packed = nn.utils.rnn.pack_padded_sequence(self.embed(words), lengths, batch_first=True, enforce_sorted=False)\n"
                "        h, _ = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)\n"
            ),
        ),
    ),
    fine(
        "tagger_masked_by_hand",
        "tagger",
        ("nn.CrossEntropyLoss(ignore_index=IGNORE)", 'nn.CrossEntropyLoss(reduction="none")'),
        ("torch.full((len(batch), longest), IGNORE)", "torch.full((len(batch), longest), 0)"),
        (
            "        loss.backward()\n",
            (
                "        real = (words != PAD).reshape(-1).float()\n"
                "        loss = (loss * real).sum() / real.sum()\n"
                "        loss.backward()\n"
            ),
        ),
    ),
    fine(
        "teacher_swapped_every_50",
        "mean_teacher",
        (
            "        update_teacher(student, teacher, momentum=0.95)\n",
            "        if step % 50 == 0:\n            teacher.load_state_dict(student.state_dict())\n",
        ),
    ),
    fine(
        "teacher_saved_and_resumed",
        "mean_teacher",
        (
            "        student.train()\n",
            (
                "        if step == 100:\n"
                "            saved = copy.deepcopy((student.state_dict(), optimizer.state_dict()))\n"
                "            optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)\n"
                "            student.load_state_dict(saved[0])\n"
                "            optimizer.load_state_dict(saved[1])\n"
                "        student.train()\n"
            ),
        ),
    ),
)
