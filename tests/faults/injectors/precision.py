"""Number formats: what is too small, too large, or lost on the way."""

from tests.faults.injectors.fault import fault

_NO_SCALER = (
    ("        scaler.scale(loss).backward()\n        scaler.unscale_(optimizer)\n", "        loss.backward()\n"),
    ("        scaler.step(optimizer)\n        scaler.update()\n", "        optimizer.step()\n"),
)

EDITS = (
    # ------------------------------------------------------------ fp16_underflow
    fault(
        "mixed_without_scaler_tiny_loss",
        "mixed",
        "fp16_underflow",
        *_NO_SCALER,
        ("loss = F.cross_entropy(logits, y)", "loss = F.cross_entropy(logits, y) * 1e-6"),
        ("        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", ""),
        step=0,
    ),
    fault(
        "autoencoder_half_sum_of_small_errors",
        "autoencoder",
        "fp16_underflow",
        ("    model.train()\n", "    model.half().train()\n"),
        ("        noisy = clean + 0.1", "        clean = clean.half()\n        noisy = clean + 0.1"),
        ("F.mse_loss(recon, clean)", "1e-4 * F.mse_loss(recon, clean)"),
        ("optim.Adam(model.parameters(), lr=lr)", "optim.SGD(model.parameters(), lr=100.0)"),
        step=0,
    ),
    # ------------------------------------------------------------ fp16_overflow
    # ------------------------------------------------------------ bf16_update_lost
    # ------------------------------------------------------------ loss_scale_misuse
    fault(
        "mixed_optimizer_steps_past_the_scaler",
        "mixed",
        "loss_scale_misuse",
        (
            (
                "        scaler.unscale_(optimizer)\n"
                "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
                "        scaler.step(optimizer)\n"
                "        scaler.update()\n"
            ),
            "        optimizer.step()\n",
        ),
        step=0,
    ),
    fault(
        "mixed_scaler_never_updated",
        "mixed",
        "loss_scale_misuse",
        ("        scaler.update()\n", ""),
        raises=True,
        verdict=("failing", "suspect", "inconclusive"),
    ),
    # A scaler that is made anew never lowers its scale: it skips every step, which is both faults.
    fault(
        "mixed_scaler_made_in_the_loop",
        "mixed",
        ("loss_scale_misuse", "optimizer_step_missing"),
        ('    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)\n', ""),
        (
            "        optimizer.zero_grad()\n",
            '        optimizer.zero_grad()\n        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)\n',
        ),
        step=0,
    ),
    fault(
        "mixed_large_activations",
        "mixed",
        "fp16_overflow",
        ("        return self.head(x)\n", "        return self.head(x * 1e5)\n"),
        *_NO_SCALER,
        verdict="failing",
        step=0,
    ),
    fault(
        "vae_half_sum_over_a_large_batch",
        "vae",
        "fp16_overflow",
        ("vae = VAE()\n", "vae = VAE().half()\n"),
        ("recon, mu, logvar = vae(batch)", "recon, mu, logvar = vae(batch.half())"),
        ("elbo_loss(recon, batch, mu, logvar)", "elbo_loss(recon, batch.half(), mu, logvar)"),
        ("batch_size=64", "batch_size=1700"),
        ("range(9)", "range(30)"),
        verdict="failing",
        step=0,
    ),
    # In float32 these rates train; in bfloat16 nearly every update is below half a unit in the last place.
    fault(
        "gpt_all_bfloat16",
        "char_gpt",
        "bf16_update_lost",
        ("model = GPT(len(chars))\n", "model = GPT(len(chars)).to(torch.bfloat16)\n"),
        ("max_lr = 6e-3", "max_lr = 5e-5"),
        ("args.steps):", "60):"),
        step=0,
    ),
    fault(
        "rows_bfloat16_weights",
        "rows_lstm",
        "bf16_update_lost",
        ("net = RowReader()\n", "net = RowReader().bfloat16()\n"),
        ("        scores = net(xb)\n", "        scores = net(xb.bfloat16())\n"),
        ("acc = (net(xb)", "acc = (net(xb.bfloat16())"),
        ("lr=5e-3", "lr=1e-4"),
        ("range(5)", "range(3)"),
        step=0,
    ),
)
