"""The order of things in the loop: clearing, accumulating, stepping, clipping, modes, schedules, resuming."""

from tests.faults.injectors.fault import fault, fine

EDITS = (
    # ------------------------------------------------------------ missing_zero_grad
    fault("house_no_zero_grad", "house", "missing_zero_grad", ("        optimizer.zero_grad()\n", ""), step=1),
    fault(
        "digits_mlp_no_zero_grad", "digits_mlp", "missing_zero_grad", ("        optimizer.zero_grad()\n", ""), step=1
    ),
    fault(
        "cnn_no_zero_grad", "digits_cnn", "missing_zero_grad", ("            self.optimizer.zero_grad()\n", ""), step=1
    ),
    fault(
        "gpt_no_zero_grad", "char_gpt", "missing_zero_grad", ("    optimizer.zero_grad(set_to_none=True)\n", ""), step=1
    ),
    fault("policy_no_zero_grad", "policy", "missing_zero_grad", ("    optimizer.zero_grad()\n", ""), step=1),
    # ------------------------------------------------------------ accumulation_unscaled
    fault(
        "accumulate_not_divided",
        "accumulate",
        "accumulation_unscaled",
        ("(loss / ACCUM_STEPS).backward()", "loss.backward()"),
        # With four it would train all the same; with sixteen the rate that fits a mean does not fit the sum.
        ("ACCUM_STEPS = 4", "ACCUM_STEPS = 16"),
        ("batch_size=16", "batch_size=4"),
        step=0,
    ),
    fault(
        "digits_mlp_accumulates_unscaled",
        "digits_mlp",
        "accumulation_unscaled",
        (
            "for images, labels in loader:\n        outputs",
            "for i, (images, labels) in enumerate(loader):\n        outputs",
        ),
        (
            "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n",
            (
                "        loss.backward()\n"
                "        if i % 16 == 15:\n"
                "            optimizer.step()\n"
                "            optimizer.zero_grad()\n"
            ),
        ),
        ("batch_size=50", "batch_size=10"),
        step=0,
    ),
    # ------------------------------------------------------------ accumulation_wiped
    fault(
        "accumulate_cleared_in_between",
        "accumulate",
        "accumulation_wiped",
        (
            "        loss = loss_fn(model(x), y)\n",
            "        optimizer.zero_grad()\n        loss = loss_fn(model(x), y)\n",
        ),
        step=0,
    ),
    fault(
        "gpt_micro_batches_cleared",
        "char_gpt",
        "accumulation_wiped",
        (
            (
                '    xb, yb = get_batch("train")\n'
                "    logits, loss = model(xb, yb)\n"
                "    optimizer.zero_grad(set_to_none=True)\n"
                "    loss.backward()\n"
            ),
            (
                "    for micro_step in range(3):\n"
                '        xb, yb = get_batch("train")\n'
                "        logits, loss = model(xb, yb)\n"
                "        optimizer.zero_grad(set_to_none=True)\n"
                "        (loss / 2).backward()\n"
            ),
        ),
        step=0,
    ),
    fault(
        "multitask_clears_between_losses",
        "multitask",
        "accumulation_wiped",
        ("    return digit_loss + ink_loss + loop_loss\n", "    return digit_loss, ink_loss, loop_loss\n"),
        (
            (
                "        optimizer.zero_grad()\n"
                '        out = model(batch["x"])\n'
                "        loss = compute_loss(out, batch)\n"
                "        loss.backward()\n"
            ),
            (
                '        out = model(batch["x"])\n'
                "        for loss in compute_loss(out, batch):\n"
                "            optimizer.zero_grad()\n"
                "            loss.backward(retain_graph=True)\n"
            ),
        ),
        step=0,
    ),
    # ------------------------------------------------------------ function_misused
    fault(
        "policy_probabilities_as_logits",
        "policy",
        "function_misused",
        ("Categorical(probs)", "Categorical(logits=probs)"),
        step=0,
    ),
    fault(
        "simclr_loss_of_pairs_with_zeros",
        "simclr",
        "function_misused",
        (
            "        loss = nt_xent(z1, z2)\n",
            (
                "        same = torch.arange(len(z1)) % 2\n"
                "        other = torch.where(same[:, None] == 1, z2, z2.roll(1, 0))\n"
                "        loss = F.cosine_embedding_loss(z1, other, same)\n"
            ),
        ),
        step=0,
    ),
    # ------------------------------------------------------------ value_unused
    fault(
        "vae_divergence_forgotten",
        "vae",
        "value_unused",
        ("return (bce + kld) / x.size(0)", "return bce / x.size(0)"),
        step=0,
    ),
    # ------------------------------------------------------------ weights_overwritten
    fault(
        "digits_mlp_weights_corrupted",
        "digits_mlp",
        "weights_overwritten",
        (
            "        running_loss += loss.item()\n",
            (
                "        running_loss += loss.item()\n"
                '        train_one_epoch.calls = getattr(train_one_epoch, "calls", 0) + 1\n'
                "        if train_one_epoch.calls == 150:\n"
                "            model[2].weight.data = torch.randn_like(model[2].weight) * 3\n"
            ),
        ),
        layer="2",
        step=150,
    ),
    fault(
        "rows_weights_scrambled",
        "rows_lstm",
        "weights_overwritten",
        (
            "        opt.step()\n",
            (
                "        opt.step()\n"
                "        if epoch >= 2:\n"
                "            net.fc.weight.data = net.fc.weight.data[torch.randperm(10)]\n"
            ),
        ),
        layer="fc",
        step=93,
    ),
    # ------------------------------------------------------------ refused_operation
    fault(
        "vae_crash_of_shapes",
        "vae",
        "refused_operation",
        (
            "    for batch in loader:\n",
            "    for batch in loader:\n        if epoch == 3:\n            batch = batch[:, :60]\n",
        ),
        verdict="failing",
        raises=True,
    ),
    fault(
        "rows_state_is_carried_on",
        "rows_lstm",
        "refused_operation",
        (
            "        out, (h_n, c_n) = self.lstm(x)\n",
            (
                "        state = getattr(self, 'state', None) if self.training else None\n"
                "        out, (h_n, c_n) = self.lstm(x, state)\n"
                "        if self.training:\n"
                "            self.state = h_n, c_n\n"
            ),
        ),
        step=0,
    ),
    # ------------------------------------------------------------ optimizer_step_missing
    fault(
        "house_never_steps",
        "house",
        "optimizer_step_missing",
        ("        optimizer.step()\n", ""),
        step=0,
        verdict=("failing", "suspect", "inconclusive"),
    ),
    fault("rows_lr_zero", "rows_lstm", "optimizer_step_missing", ("lr=5e-3", "lr=0"), step=0),
    fault(
        "autoencoder_never_steps",
        "autoencoder",
        "optimizer_step_missing",
        ("        optimizer.step()\n", ""),
        step=0,
        verdict=("failing", "suspect", "inconclusive"),
    ),
    # ------------------------------------------------------------ update_lost
    fault(
        "house_best_weights_loaded_back",
        "house",
        "update_lost",
        (
            "batch_size = 32\n",
            'batch_size = 32\nbest, best_state = float("inf"), {k: v.clone() for k, v in model.state_dict().items()}\n',
        ),
        (
            "        optimizer.step()\n",
            (
                "        optimizer.step()\n"
                "        if loss.item() < best - 10.0:\n"
                "            best, best_state = loss.item(), {k: v.clone() for k, v in model.state_dict().items()}\n"
                "        model.load_state_dict(best_state)\n"
            ),
        ),
        step=0,
    ),
    fault(
        "autoencoder_own_sgd_on_a_copy",
        "autoencoder",
        "update_lost",
        (
            "class Autoencoder(nn.Module):",
            (
                "class Momentum(optim.Optimizer):\n"
                "    def __init__(self, params, lr):\n"
                '        super().__init__(params, {"lr": lr})\n'
                "\n"
                "    @torch.no_grad()\n"
                "    def step(self):\n"
                "        for group in self.param_groups:\n"
                '            for p in group["params"]:\n'
                "                state = self.state[p]\n"
                '                v = state.get("v", torch.zeros_like(p))\n'
                '                state["v"] = 0.9 * v + p.grad\n'
                '                p = p - group["lr"] * state["v"]\n'
                "\n"
                "\n"
                "class Autoencoder(nn.Module):"
            ),
        ),
        ("optim.Adam(model.parameters(), lr=lr)", "Momentum(model.parameters(), lr=0.5)"),
        step=0,
    ),
    fault(
        "house_flatten_copies_transposed_weight",
        "house",
        "update_lost",
        (
            "class PriceNet(nn.Module):",
            (
                "class PlainSGD(torch.optim.Optimizer):\n"
                "    def __init__(self, params, lr):\n"
                '        super().__init__(params, {"lr": lr})\n'
                "\n"
                "    @torch.no_grad()\n"
                "    def step(self):\n"
                "        for group in self.param_groups:\n"
                '            for p in group["params"]:\n'
                '                p.flatten().sub_(group["lr"] * p.grad.flatten())\n'
                "\n"
                "\n"
                "class PriceNet(nn.Module):"
            ),
        ),
        (
            "        self.drop = nn.Dropout(0.1)\n",
            (
                "        self.drop = nn.Dropout(0.1)\n"
                "        self.fc2.weight = nn.Parameter(torch.nn.init.kaiming_normal_(torch.empty(hidden, hidden)).t())\n"
            ),
        ),
        ("torch.optim.Adam(model.parameters(), lr=3e-3)", "PlainSGD(model.parameters(), lr=0.1)"),
        layer="fc2",
        step=0,
    ),
    # ------------------------------------------------------------ clip_misplaced
    fault(
        "gpt_clips_before_backward",
        "char_gpt",
        "clip_misplaced",
        (
            "    loss.backward()\n    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)\n",
            "    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)\n    loss.backward()\n",
        ),
        ("    optimizer.zero_grad(set_to_none=True)\n", ""),
        ("    optimizer.step()\n", "    optimizer.step()\n    optimizer.zero_grad()\n"),
        step=0,
    ),
    fault(
        "rows_clips_after_step",
        "rows_lstm",
        "clip_misplaced",
        (
            "        nn.utils.clip_grad_norm_(net.parameters(), 5.0)\n        opt.step()\n",
            "        opt.step()\n        nn.utils.clip_grad_norm_(net.parameters(), 0.5)\n",
        ),
        step=0,
    ),
    fault(
        "mixed_clips_scaled_gradients",
        "mixed",
        "clip_misplaced",
        ("        scaler.unscale_(optimizer)\n", ""),
        step=0,
    ),
    # ------------------------------------------------------------ clip_too_tight
    fault(
        "digits_mlp_clip_0001",
        "digits_mlp",
        "clip_too_tight",
        (
            "        loss.backward()\n",
            "        loss.backward()\n        nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.001)\n",
        ),
        step=0,
    ),
    fault(
        "accumulate_clip_0001",
        "accumulate",
        "clip_too_tight",
        (
            "            optimizer.step()\n",
            "            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)\n            optimizer.step()\n",
        ),
        step=0,
    ),
    fault(
        "rows_clip_value_tiny",
        "rows_lstm",
        "clip_too_tight",
        ("clip_grad_norm_(net.parameters(), 5.0)", "clip_grad_norm_(net.parameters(), 1e-3)"),
        ("torch.optim.Adam(net.parameters(), lr=5e-3)", "torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)"),
        step=0,
    ),
    # ------------------------------------------------------------ eval_mode_left_on
    fault(
        "house_train_call_forgotten",
        "house",
        "eval_mode_left_on",
        ("    model.train()\n", ""),
        ("nn.Dropout(0.1)", "nn.Dropout(0.3)"),
        step=22,
    ),
    fault("cnn_train_call_forgotten", "digits_cnn", "eval_mode_left_on", ("        self.model.train()\n", ""), step=26),
    fault("digits_mlp_train_call_forgotten", "digits_mlp", "eval_mode_left_on", ("    model.train()\n", ""), step=28),
    fault(
        "student_in_eval_mode",
        "mean_teacher",
        "eval_mode_left_on",
        ("        student.train()\n        teacher.eval()\n", "        teacher.eval()\n        student.eval()\n"),
        step=0,
    ),
    # ------------------------------------------------------------ train_mode_in_eval
    fault(
        "cnn_validates_in_train_mode", "digits_cnn", "train_mode_in_eval", ("        self.model.eval()\n", ""), step=26
    ),
    fault(
        "digits_mlp_validates_in_train_mode",
        "digits_mlp",
        "train_mode_in_eval",
        ("    model.eval()\n", ""),
        ("nn.Dropout(0.1)", "nn.Dropout(0.5)"),
        step=28,
    ),
    fault(
        "house_validates_in_train_mode",
        "house",
        "train_mode_in_eval",
        ("    model.eval()\n", ""),
        ("nn.Dropout(0.1)", "nn.Dropout(0.4)"),
        step=22,
    ),
    fault(
        "student_tested_in_train_mode",
        "mean_teacher",
        "train_mode_in_eval",
        ("    net.eval()\n", "    net.train()\n"),
        step=50,
    ),
    # ------------------------------------------------------------ schedule_error
    fault(
        "cnn_cosine_per_batch",
        "digits_cnn",
        "schedule_error",
        (
            "            self.optimizer.step()\n",
            "            self.optimizer.step()\n            self.scheduler.step()\n",
        ),
        (
            "            train_loss = self.train_epoch()\n            self.scheduler.step()\n",
            "            train_loss = self.train_epoch()\n",
        ),
    ),
    fault(
        "digits_mlp_step_schedule_per_batch",
        "digits_mlp",
        "schedule_error",
        (
            "def train_one_epoch(model, loader, criterion, optimizer):",
            "def train_one_epoch(model, loader, criterion, optimizer, scheduler):",
        ),
        ("        optimizer.step()\n", "        optimizer.step()\n        scheduler.step()\n"),
        (
            "train_one_epoch(model, train_loader, criterion, optimizer)\n        scheduler.step()\n",
            "train_one_epoch(model, train_loader, criterion, optimizer, scheduler)\n",
        ),
    ),
    fault(
        "gpt_schedule_of_epochs_in_steps",
        "char_gpt",
        "schedule_error",
        ('    for group in optimizer.param_groups:\n        group["lr"] = get_lr(it)\n', ""),
        (
            "\nfor it in range(args.steps):\n",
            (
                "scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)\n"
                "\n"
                "for it in range(args.steps):\n"
            ),
        ),
        ("    optimizer.step()\n", "    optimizer.step()\n    scheduler.step()\n"),
    ),
    fault(
        "autoencoder_linear_decay_ends_early",
        "autoencoder",
        "schedule_error",
        (
            "    model.train()\n",
            (
                "    scheduler = optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=30)\n"
                "    model.train()\n"
            ),
        ),
        ("        optimizer.step()\n", "        optimizer.step()\n        scheduler.step()\n"),
    ),
    fault(
        "cnn_scheduler_made_in_each_epoch",
        "digits_cnn",
        "schedule_error",
        (
            "        self.model.train()\n",
            (
                "        self.model.train()\n"
                "        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=self.epochs)\n"
            ),
        ),
    ),
    # ------------------------------------------------------------ optimizer_state_lost
    fault(
        "cnn_new_optimizer_each_epoch",
        "digits_cnn",
        "optimizer_state_lost",
        (
            "        self.model.train()\n",
            (
                "        self.model.train()\n"
                "        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3, weight_decay=1e-3)\n"
            ),
        ),
        ("            self.scheduler.step()\n", ""),
        step=26,
    ),
    fault(
        "digits_mlp_optimizer_in_epoch",
        "digits_mlp",
        "optimizer_state_lost",
        (
            (
                "    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)\n"
                "    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)\n"
            ),
            "",
        ),
        (
            "    for epoch in range(args.epochs):\n",
            (
                "    for epoch in range(args.epochs):\n"
                "        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)\n"
            ),
        ),
        ("        scheduler.step()\n", ""),
        step=28,
    ),
    # One new optimizer for the same weights, as a new phase of a training makes; no file held a state that was left
    # behind, and the loss does not jump: nothing to blame.
    fine(
        "gpt_resumes_without_optimizer_state",
        "char_gpt",
        (
            "    if it % 40 == 0:\n",
            (
                "    if it == 80:\n"
                '        torch.save(model.state_dict(), "/tmp/gpt-checkpoint.pt")\n'
                '        model.load_state_dict(torch.load("/tmp/gpt-checkpoint.pt"))\n'
                "        optimizer = torch.optim.AdamW(model.parameters(), lr=max_lr, betas=(0.9, 0.95), weight_decay=weight_decay)\n"
                "        for group in optimizer.param_groups:\n"
                '            group["lr"] = get_lr(it)\n'
                "    if it % 40 == 0:\n"
            ),
        ),
    ),
    # ------------------------------------------------------------ ema_stale
    fault(
        "teacher_never_updated",
        "mean_teacher",
        "ema_stale",
        ("        update_teacher(student, teacher, momentum=0.95)\n", ""),
    ),
    fault(
        "teacher_momentum_the_wrong_way",
        "mean_teacher",
        "ema_stale",
        ("p_t.mul_(momentum).add_(p_s, alpha=1 - momentum)", "p_t.mul_(momentum).add_(p_t, alpha=1 - momentum)"),
    ),
    fault(
        "teacher_is_the_student",
        "mean_teacher",
        "ema_stale",
        ("p_t.mul_(momentum).add_(p_s, alpha=1 - momentum)", "p_t = momentum * p_t + (1 - momentum) * p_s"),
    ),
    fault(
        "gan_discriminator_never_steps", "gan_ring", "optimizer_step_missing", ("    optimizerD.step()\n", ""), step=0
    ),
)
