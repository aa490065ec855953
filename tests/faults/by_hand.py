"""Remedies that a person has to place: the code of the remedy as it is pasted into a faulty script.

``taken`` are the parts of the remedy's code that are pasted; the changes show where they go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.edits import Change


@dataclass(frozen=True)
class ByHand:
    """One cause, a script that has it, and the remedy's code at its place."""

    cause: str
    script: str
    taken: Sequence[str]
    changes: Sequence[Change]
    numbers: str = ""
    """Pattern whose named groups are found in the remedy's code, and put into the changes at ``{name}``."""


BY_HAND = (
    ByHand(
        "accumulation_wiped",
        "accumulate_cleared_in_between",
        ("    optimizer.zero_grad()",),
        [
            (
                "        optimizer.zero_grad()\n        loss = loss_fn(model(x), y)\n",
                "        loss = loss_fn(model(x), y)\n",
            )
        ],
    ),
    ByHand(
        "clip_misplaced",
        "rows_clips_after_step",
        ("torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)\nopt.step()",),
        [
            (
                "        opt.step()\n        nn.utils.clip_grad_norm_(net.parameters(), 0.5)\n",
                "        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)\n        opt.step()\n",
            )
        ],
    ),
    ByHand(
        "clip_misplaced",
        "mixed_clips_scaled_gradients",
        ("scaler.unscale_(optimizer)",),
        [("scaler.scale(loss).backward()\n", "scaler.scale(loss).backward()\n        scaler.unscale_(optimizer)\n")],
    ),
    ByHand(
        "clip_too_tight",
        "digits_mlp_clip_0001",
        ("torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)",),
        [
            (
                "nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.001)",
                "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)",
            )
        ],
    ),
    ByHand(
        "detached_graph",
        "autoencoder_code_detached",
        ("# not x.detach()",),
        [("self.decoder(code.detach())", "self.decoder(code)")],
    ),
    ByHand(
        "double_normalisation",
        "digits_mlp_scaled_twice",
        ("# once",),
        [("    images = images / 255.0\n", "")],
    ),
    ByHand(
        "input_ignored",
        "vae_decodes_noise",
        ("mu + std * torch.randn_like(std)",),
        [("return eps", "return mu + std * torch.randn_like(std)")],
    ),
    ByHand(
        "loss_mask_error",
        "tagger_ignores_a_real_tag",
        ("labels = torch.full((batch, longest), -100)", "CrossEntropyLoss(ignore_index=-100)"),
        [("IGNORE = ", "IGNORE = -100 #")],
    ),
    ByHand(
        "loss_task_mismatch",
        "cnn_bce_for_ten_classes",
        ("torch.nn.functional.cross_entropy(",),
        [
            (
                "F.binary_cross_entropy_with_logits(logits.max(dim=1).values, labels.float())",
                "torch.nn.functional.cross_entropy(logits, labels.long())",
            )
        ],
    ),
    ByHand(
        "missing_log_softmax",
        "digits_mlp_nll_of_logits",
        ("torch.nn.functional.cross_entropy(",),
        [("nn.NLLLoss()", "torch.nn.functional.cross_entropy")],
    ),
    ByHand(
        "double_sigmoid",
        "multitask_sigmoid_head",
        ("without sigmoid",),
        [("torch.sigmoid(self.loop_head(h)).squeeze(1)", "self.loop_head(h).squeeze(1)")],
    ),
    ByHand(
        "output_activation_mismatch",
        "house_relu_head",
        ("without relu",),
        [("torch.relu(self.out(x)).squeeze(-1)", "self.out(x).squeeze(-1)")],
    ),
    ByHand(
        "optimizer_stale_params",
        "vae_copied_after_optimizer",
        ("optimizer = torch.optim.Adam(vae.parameters(), lr=0.002)",),
        [
            (
                'vae = __import__("copy").deepcopy(vae)\n',
                (
                    'vae = __import__("copy").deepcopy(vae)\n'
                    "optimizer = torch.optim.Adam(vae.parameters(), lr=0.002)  # last of all\n"
                ),
            )
        ],
    ),
    ByHand(
        "optimizer_state_lost",
        "digits_mlp_optimizer_in_epoch",
        ("optimizer = torch.optim.SGD(model.parameters(), lr=0.05", "for epoch in range("),
        [
            (
                (
                    "    for epoch in range(args.epochs):\n"
                    "        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)\n"
                ),
                "    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)\n    for epoch in range(args.epochs):\n",
            )
        ],
    ),
    ByHand(
        "optimizer_step_missing",
        "house_never_steps",
        ("loss.backward()\noptimizer.step()",),
        [("        loss.backward()\n", "        loss.backward()\n        optimizer.step()\n")],
    ),
    ByHand(
        "param_unused",
        "house_middle_layer_not_called",
        ("x = self.fc2(x)",),
        [("        x = self.drop(x)\n", "        x = self.fc2(x)\n        x = self.drop(x)\n")],
    ),
    ByHand(
        "schedule_error",
        "cnn_cosine_per_batch",
        ("\n    scheduler.step()",),
        [
            (
                "            self.optimizer.step()\n            self.scheduler.step()\n",
                "            self.optimizer.step()\n",
            ),
            (
                "            train_loss = self.train_epoch()\n",
                "            train_loss = self.train_epoch()\n            self.scheduler.step()\n",
            ),
        ],
    ),
    ByHand(
        "train_mode_in_eval",
        "student_tested_in_train_mode",
        ("student.eval()",),
        [("    net.train()\n", "    net.eval()\n")],
    ),
    ByHand(
        "unnormalised_inputs",
        "house_raw_columns",
        ("mean, std = x_train.mean(0), x_train.std(0).clamp_min(1e-6)\n", " = (x - mean) / std"),
        [
            (
                "model = PriceNet(x_train.shape[1])\n",
                (
                    "model = PriceNet(x_train.shape[1])\n"
                    "mean, std = x_train.mean(0), x_train.std(0).clamp_min(1e-6)\n"
                    "x_train, x_val = (x_train - mean) / std, (x_val - mean) / std\n"
                ),
            )
        ],
    ),
    ByHand(
        "unnormalised_targets",
        "house_raw_prices",
        ("target = (target - ",),
        [
            (
                "        xb, yb = x_train[idx], y_train[idx]\n",
                "        xb, yb = x_train[idx], (y_train[idx] - {mean}) / {std}\n",
            )
        ],
        r"\(target - (?P<mean>[\d.e+-]+)\) / (?P<std>[\d.e+-]+)",
    ),
    ByHand(
        "unregistered_params",
        "house_hidden_layers_in_a_list",
        ("self.hidden = nn.ModuleList(self.hidden)",),
        [
            (
                "        self.hidden = [nn.Linear(hidden, hidden) for _ in range(2)]\n",
                (
                    "        self.hidden = [nn.Linear(hidden, hidden) for _ in range(2)]\n"
                    "        self.hidden = nn.ModuleList(self.hidden)\n"
                ),
            )
        ],
    ),
    ByHand(
        "unstable_op",
        "house_root_of_mse_at_zero",
        ("torch.sqrt(x + 1e-8)",),
        [
            (
                "(model.fc2.weight - initial).pow(2).sum().sqrt()",
                "torch.sqrt((model.fc2.weight - initial).pow(2).sum() + 1e-8)",
            )
        ],
    ),
    ByHand(
        "zero_gradient_path",
        "graph_sign_activation",
        ("x = self.gc1", "x + (torch.sign(x) - x).detach()"),
        [
            (
                "        x = F.relu(torch.sign(self.gc1(x, adj)))\n",
                "        x = self.gc1(x, adj)\n        x = x + (torch.sign(x) - x).detach()\n        x = F.relu(x)\n",
            )
        ],
    ),
    ByHand(
        "target_broadcast",
        "house_target_broadcast",
        (" = prediction.squeeze(-1)",),
        [("        pred = model(xb)\n", "        pred = model(xb).squeeze(-1)\n")],
    ),
    ByHand(
        "target_out_of_range",
        "multitask_labels_minus_one_and_one",
        ("target = (target > 0).float()",),
        [('(out["loop"], batch["loop"])', '(out["loop"], (batch["loop"] > 0).float())')],
    ),
    ByHand(
        "target_out_of_range",
        "digits_mlp_labels_from_one",
        ("target = target - 1  # before the loss",),
        [("loss = criterion(outputs, labels)", "labels = labels - 1\n        loss = criterion(outputs, labels)")],
    ),
    ByHand(
        "batch_axis_mixup",
        "house_normalises_over_the_batch",
        ("F.softmax(x, dim=-1)",),
        [("x = x.softmax(0) * 8", "x = x.softmax(dim=-1) * 8")],
    ),
    ByHand(
        "refused_operation",
        "rows_state_is_carried_on",
        ("hidden = tuple(h.detach() for h in hidden)",),
        [("self.state = h_n, c_n", "self.state = tuple(h.detach() for h in (h_n, c_n))")],
    ),
    ByHand(
        "missing_activation",
        "house_without_activations",
        ("x = torch.relu(self.fc1(x))\nx = torch.relu(self.fc2(x))",),
        [("x = self.fc1(x)", "x = torch.relu(self.fc1(x))"), ("x = self.fc2(x)", "x = torch.relu(self.fc2(x))")],
    ),
    ByHand(
        "exploding_depth",
        "house_residual_tower_without_norm",
        ("x = torch.nn.functional.layer_norm(x, x.shape[-1:])",),
        [
            (
                "            x = x + torch.relu(layer(x))\n",
                (
                    "            x = x + torch.relu(layer(x))\n"
                    "            x = torch.nn.functional.layer_norm(x, x.shape[-1:])\n"
                ),
            )
        ],
    ),
    ByHand(
        "class_imbalance",
        "accumulate_rare_class",
        (
            "counts = torch.bincount(labels, minlength=5).clamp(min=1)",
            "weight = counts.sum() / (len(counts) * counts)",
            "CrossEntropyLoss(weight=weight)",
        ),
        [
            (
                "loss_fn = nn.CrossEntropyLoss()\n",
                (
                    "counts = torch.bincount(labels, minlength=5).clamp(min=1)\n"
                    "weight = counts.sum() / (len(counts) * counts)\n"
                    "loss_fn = torch.nn.CrossEntropyLoss(weight=weight)\n"
                ),
            ),
        ],
    ),
    ByHand(
        "fp16_underflow",
        "mixed_without_scaler_tiny_loss",
        (
            'scaler = torch.amp.GradScaler("cpu")',
            "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
        ),
        [
            (
                '    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)\n',
                '    scaler = torch.amp.GradScaler("cpu")\n',
            ),
            ("        loss.backward()\n", "        scaler.scale(loss).backward()\n"),
            ("        optimizer.step()\n", "        scaler.step(optimizer)\n        scaler.update()\n"),
        ],
    ),
    ByHand(
        "fp16_overflow",
        "mixed_large_activations",
        ('with torch.autocast("cpu", dtype=torch.bfloat16):',),
        [('torch.autocast("cpu", dtype=torch.float16)', 'torch.autocast("cpu", dtype=torch.bfloat16)')],
    ),
    ByHand(
        "bf16_update_lost",
        "rows_bfloat16_weights",
        ("net.float()\n", 'with torch.autocast("cpu", dtype=torch.bfloat16):'),
        [
            ("net = RowReader().bfloat16()\n", "net = RowReader()\nnet.float()\n"),
            (
                "        scores = net(xb.bfloat16())\n        loss = loss_fn(scores, yb)\n",
                (
                    '        with torch.autocast("cpu", dtype=torch.bfloat16):\n'
                    "            scores = net(xb)\n            loss = loss_fn(scores, yb)\n"
                ),
            ),
            ("acc = (net(xb.bfloat16())", "acc = (net(xb)"),
        ],
    ),
    ByHand(
        "loss_scale_misuse",
        "mixed_scaler_never_updated",
        ("scaler.step(optimizer)\nscaler.update()",),
        [("        scaler.step(optimizer)\n", "        scaler.step(optimizer)\n        scaler.update()\n")],
    ),
    ByHand(
        "gradient_conflict",
        "multitask_one_loss_drowns_the_rest",
        ("* loss_1 + ", "* loss_2"),
        [
            (
                "return digit_loss + 10000 * ink_loss + loop_loss",
                "return digit_loss + 3.5e-05 * 10000 * ink_loss + loop_loss",
            )
        ],
    ),
    ByHand(
        "capacity_too_small",
        "digits_mlp_two_hidden_units",
        ("torch.nn.Linear(..., 64)",),
        [("hidden=2", "hidden=64")],
    ),
    ByHand(
        "mode_collapse",
        "vae_beta_1000",
        ("loss = reconstruction + kl_weight * kl",),
        [("(bce + 1000 * kld)", "(bce + {kl_weight} * 1000 * kld)")],
        r"kl_weight = (?P<kl_weight>[\d.e+-]+)",
    ),
    ByHand(
        "mode_collapse",
        "gan_noise_too_small",
        ("noise = torch.randn(64, 8)",),
        [("1e-3 * torch.randn(batch_size, nz)", "torch.randn(64, 8)")],
    ),
    ByHand(
        "unshuffled_data",
        "digits_mlp_sorted",
        ("shuffle=True",),
        [("shuffle=False", "shuffle=True")],
    ),
)
