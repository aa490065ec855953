"""What is optimised is not what is meant."""

from tests.faults.injectors.fault import fault

EDITS = (
    # ------------------------------------------------------------ double_softmax
    fault(
        "digits_mlp_softmax_layer",
        "digits_mlp",
        "double_softmax",
        ("        nn.Linear(hidden, 10),\n", "        nn.Linear(hidden, 10),\n        nn.Softmax(dim=1),\n"),
        layer="6",
        step=0,
    ),
    fault(
        "cnn_softmax_in_forward",
        "digits_cnn",
        "double_softmax",
        ("return self.classifier(x)", "return F.softmax(self.classifier(x), dim=1)"),
        layer="classifier",
        step=0,
    ),
    fault(
        "rows_softmax_in_forward",
        "rows_lstm",
        "double_softmax",
        ("return self.fc(last)", "return torch.softmax(self.fc(last), dim=-1)"),
        layer="fc",
        step=0,
    ),
    fault(
        "graph_log_of_softmax_twice",
        "graph",
        "double_softmax",
        ("        return self.out(x)\n", "        return F.softmax(self.out(x), dim=1)\n"),
        layer="out",
        step=0,
    ),
    # ---------------------------------------------------------- adversary_helped
    fault(
        "gan_generator_wants_fake_label",
        "gan_ring",
        "adversary_helped",
        ("errG = criterion(netD(fake), real_label)", "errG = criterion(netD(fake), fake_label)"),
        step=1,
    ),
    # ------------------------------------------------------------ double_sigmoid
    fault(
        "gan_sigmoid_in_discriminator",
        "gan_ring",
        "double_sigmoid",
        ("            nn.Linear(48, 1),\n", "            nn.Linear(48, 1),\n            nn.Sigmoid(),\n"),
        step=0,
    ),
    fault(
        "vae_sigmoid_in_decoder",
        "vae",
        "double_sigmoid",
        ("        return self.fc4(h)\n", "        return torch.sigmoid(self.fc4(h))\n"),
        layer="fc4",
        step=0,
    ),
    fault(
        "multitask_sigmoid_head",
        "multitask",
        "double_sigmoid",
        ('"loop": self.loop_head(h).squeeze(1),', '"loop": torch.sigmoid(self.loop_head(h)).squeeze(1),'),
        layer="loop_head",
        step=0,
    ),
    # ------------------------------------------------------------ missing_log_softmax
    fault(
        "digits_mlp_nll_of_logits",
        "digits_mlp",
        "missing_log_softmax",
        ("nn.CrossEntropyLoss()", "nn.NLLLoss()"),
        step=0,
    ),
    fault(
        "cnn_nll_of_softmax",
        "digits_cnn",
        "missing_log_softmax",
        ("return self.classifier(x)", "return F.softmax(self.classifier(x), dim=1)"),
        ("F.cross_entropy(logits, labels)", "F.nll_loss(logits, labels)"),
        step=0,
    ),
    fault(
        "tagger_nll_of_logits",
        "tagger",
        "missing_log_softmax",
        ("nn.CrossEntropyLoss(ignore_index=IGNORE)", "nn.NLLLoss(ignore_index=IGNORE)"),
        step=0,
    ),
    # ------------------------------------------------------------ output_activation_mismatch
    fault(
        "house_sigmoid_head",
        "house",
        "output_activation_mismatch",
        ("return self.out(x).squeeze(-1)", "return torch.sigmoid(self.out(x)).squeeze(-1)"),
        layer="out",
        step=0,
    ),
    fault(
        "house_relu_head",
        "house",
        "output_activation_mismatch",
        ("return self.out(x).squeeze(-1)", "return torch.relu(self.out(x)).squeeze(-1)"),
        layer="out",
        step=0,
    ),
    fault(
        "digits_mlp_relu_on_logits",
        "digits_mlp",
        "output_activation_mismatch",
        ("        nn.Linear(hidden, 10),\n", "        nn.Linear(hidden, 10),\n        nn.ReLU(),\n"),
        layer="6",
        step=0,
    ),
    fault(
        "multitask_softmax_of_one",
        "multitask",
        "output_activation_mismatch",
        ('"ink": self.ink_head(h).squeeze(1),', '"ink": torch.softmax(self.ink_head(h), dim=1).squeeze(1),'),
        layer="ink_head",
        step=0,
    ),
    # ------------------------------------------------------------ loss_task_mismatch
    fault(
        "digits_mlp_mse_on_class_ids",
        "digits_mlp",
        "loss_task_mismatch",
        ("        nn.Linear(hidden, 10),\n", "        nn.Linear(hidden, 1),\n"),
        ("nn.CrossEntropyLoss()", "nn.MSELoss()"),
        ("loss = criterion(outputs, labels)", "loss = criterion(outputs.squeeze(1), labels.float())"),
        step=0,
    ),
    fault(
        "rows_l1_on_class_ids",
        "rows_lstm",
        "loss_task_mismatch",
        ("num_classes=10", "num_classes=1"),
        ("nn.CrossEntropyLoss()", "nn.L1Loss()"),
        ("loss = loss_fn(scores, yb)", "loss = loss_fn(scores.squeeze(-1), yb.float())"),
        step=0,
    ),
    fault(
        "cnn_bce_for_ten_classes",
        "digits_cnn",
        "loss_task_mismatch",
        (
            "loss = F.cross_entropy(logits, labels)",
            "loss = F.binary_cross_entropy_with_logits(logits.max(dim=1).values, labels.float())",
        ),
        step=0,
    ),
    # ------------------------------------------------------------ target_broadcast
    fault(
        "house_target_broadcast",
        "house",
        "target_broadcast",
        ("return self.out(x).squeeze(-1)", "return self.out(x)"),
        step=0,
    ),
    fault(
        "multitask_ink_broadcast",
        "multitask",
        "target_broadcast",
        ('"ink": self.ink_head(h).squeeze(1),', '"ink": self.ink_head(h),'),
        step=0,
    ),
    # ------------------------------------------------------------ target_out_of_range
    fault(
        "autoencoder_bce_on_grey_values",
        "autoencoder",
        "target_out_of_range",
        (
            "    return torch.as_tensor(pixels, dtype=torch.float32) / 16\n",
            "    return torch.as_tensor(pixels, dtype=torch.float32)\n",
        ),
        ("F.mse_loss(recon, clean)", "F.binary_cross_entropy_with_logits(recon, clean)"),
        step=0,
    ),
    fault(
        "vae_pixels_standardised_for_bce",
        "vae",
        "target_out_of_range",
        ("loader = DataLoader(", "images = (images - images.mean()) / images.std()\nloader = DataLoader("),
        step=0,
    ),
    fault(
        "multitask_labels_minus_one_and_one",
        "multitask",
        "target_out_of_range",
        ("torch.tensor([0, 6, 8, 9])).float()", "torch.tensor([0, 6, 8, 9])).float() * 2 - 1"),
        step=0,
    ),
    fault(
        "tagger_nearly_all_ignored",
        "tagger",
        "target_out_of_range",
        (
            "        tags[row, : len(t)] = torch.tensor(t)\n",
            "        tags[row, :1] = torch.tensor(t[:1]) if row == 0 else IGNORE\n",
        ),
        step=0,
        verdict=("failing", "suspect", "inconclusive"),
    ),
    fault(
        "digits_mlp_labels_from_one",
        "digits_mlp",
        "target_out_of_range",
        ("labels = torch.tensor(digits.target)\n", "labels = torch.tensor(digits.target) + 1\n"),
        step=0,
        raises=True,
        verdict=("failing", "suspect", "inconclusive"),
    ),
    # ------------------------------------------------------------ target_misaligned
    fault(
        "digits_mlp_only_labels_shuffled",
        "digits_mlp",
        ("target_misaligned", "label_noise"),
        ("images, labels = images[perm], labels[perm]", "labels = labels[perm]"),
        step=0,
    ),
    fault(
        "house_targets_of_another_order",
        "house",
        ("target_misaligned", "label_noise"),
        ("xb, yb = x_train[idx], y_train[idx]", "xb, yb = x_train[idx], y_train[i : i + batch_size]"),
        step=0,
    ),
    fault(
        "tagger_targets_reversed",
        "tagger",
        "target_misaligned",
        ("torch.tensor(t)\n", "torch.tensor(t[::-1])\n"),
        step=0,
    ),
    fault(
        "rows_labels_flipped_in_batch",
        "rows_lstm",
        "target_misaligned",
        ("        loss = loss_fn(scores, yb)\n", "        loss = loss_fn(scores, yb.flip(0))\n"),
        step=0,
    ),
    fault(
        "house_off_by_one_row",
        "house",
        "target_misaligned",
        ("xb, yb = x_train[idx], y_train[idx]", "xb, yb = x_train[idx], y_train[idx].roll(1)"),
        step=0,
    ),
    # ------------------------------------------------------------ labels_degenerate
    fault(
        "digits_mlp_labels_divided_away",
        "digits_mlp",
        "labels_degenerate",
        ("labels = torch.tensor(digits.target)\n", "labels = torch.tensor(digits.target) // 10\n"),
        step=0,
    ),
    fault(
        "cnn_labels_cast_to_bool",
        "digits_cnn",
        "labels_degenerate",
        (
            "return torch.from_numpy(image)[None], int(self.labels[i])",
            "return torch.from_numpy(image)[None], int(self.labels[i] > 10)",
        ),
        step=0,
    ),
    fault(
        "graph_all_one_class",
        "graph",
        "labels_degenerate",
        (
            "    train_mask = torch.rand(len(labels)) < 0.6\n",
            "    train_mask = torch.rand(len(labels)) < 0.6\n    labels = labels * 0\n",
        ),
        step=0,
    ),
    fault(
        "tagger_tags_all_zero",
        "tagger",
        "labels_degenerate",
        ("torch.tensor(t)\n", "torch.tensor([tag // TAGS for tag in t])\n"),
        step=0,
    ),
    # ------------------------------------------------------------ wrong_reduction
    fault(
        "house_sum_with_sgd",
        "house",
        "wrong_reduction",
        ("nn.MSELoss()", 'nn.MSELoss(reduction="sum")'),
        ("torch.optim.Adam(model.parameters(), lr=3e-3)", "torch.optim.SGD(model.parameters(), lr=0.05)"),
        step=0,
    ),
    fault(
        "digits_mlp_sum",
        "digits_mlp",
        "wrong_reduction",
        ("nn.CrossEntropyLoss()", 'nn.CrossEntropyLoss(reduction="sum")'),
        step=0,
    ),
    fault(
        "accumulate_sum",
        "accumulate",
        "wrong_reduction",
        ("nn.CrossEntropyLoss()", 'nn.CrossEntropyLoss(reduction="sum")'),
        step=0,
    ),
    # ------------------------------------------------------------ loss_sign_flip
    fault(
        "house_maximises",
        "house",
        "loss_sign_flip",
        ("        loss = criterion(pred, yb)\n", "        loss = -criterion(pred, yb)\n"),
        step=0,
    ),
    fault("vae_kl_sign", "vae", "loss_sign_flip", ("kld = -0.5 * torch.sum(", "kld = 0.5 * torch.sum("), step=0),
    fault(
        "policy_forgets_the_minus",
        "policy",
        "loss_sign_flip",
        ("policy_loss = -(log_probs", "policy_loss = (log_probs"),
        step=0,
    ),
    fault(
        "rows_negative_of_nll",
        "rows_lstm",
        "loss_sign_flip",
        (
            "        loss = loss_fn(scores, yb)\n",
            "        loss = scores.log_softmax(1).gather(1, yb[:, None]).mean()\n",
        ),
        step=0,
    ),
    # ------------------------------------------------------------ unstable_op
    fault(
        "simclr_norm_of_zero",
        "simclr",
        "unstable_op",
        (
            "    z1 = F.normalize(z1, dim=1)\n    z2 = F.normalize(z2, dim=1)\n",
            (
                "    z1 = z1 / z1.pow(2).sum(1, keepdim=True).sqrt()\n"
                "    z2 = z2 / z2.pow(2).sum(1, keepdim=True).sqrt()\n"
            ),
        ),
        ("return self.projector(self.backbone(x))", "return torch.relu(self.projector(self.backbone(x)) - 0.5)"),
        step=0,
        verdict="failing",
    ),
    fault(
        "graph_division_by_degree_zero",
        "graph",
        "unstable_op",
        ("degree = adj.sum(1, keepdim=True).clamp(min=1)", "degree = adj.sum(1, keepdim=True)"),
        ("    adj = upper + upper.t()\n", "    adj = upper + upper.t()\n    adj[:3] = 0\n"),
        step=0,
        verdict="failing",
    ),
    fault(
        "house_root_of_mse_at_zero",
        "house",
        "unstable_op",
        (
            "        loss = criterion(pred, yb)\n",
            "        loss = criterion(pred, yb) + 0.01 * (model.fc2.weight - initial).pow(2).sum().sqrt()\n",
        ),
        ("batch_size = 32\n", "batch_size = 32\ninitial = model.fc2.weight.detach().clone()\n"),
        step=0,
        verdict="failing",
    ),
    # ------------------------------------------------------------ loss_mask_error
    fault(
        "tagger_padding_counts",
        "tagger",
        "loss_mask_error",
        ("nn.CrossEntropyLoss(ignore_index=IGNORE)", "nn.CrossEntropyLoss()"),
        ("torch.full((len(batch), longest), IGNORE)", "torch.full((len(batch), longest), 0)"),
        step=0,
    ),
    fault(
        "tagger_mask_inverted",
        "tagger",
        "loss_mask_error",
        (
            "loss = criterion(logits.reshape(-1, TAGS), tags.reshape(-1))",
            "loss = criterion(logits.reshape(-1, TAGS), tags.masked_fill(tags != IGNORE, IGNORE).masked_fill(words == PAD, 0).reshape(-1))",
        ),
        step=0,
    ),
    fault(
        "tagger_ignores_a_real_tag",
        "tagger",
        "loss_mask_error",
        ("IGNORE = -100\n", "IGNORE = 0\n"),
        ("TAGS = 4\n", "TAGS = 4\n"),
        step=0,
    ),
    fault(
        "policy_value_broadcast",
        "policy",
        "target_broadcast",
        ("env = Corridor(16)", "env = Corridor(8)"),
        ("self.value_head(x).squeeze(-1)", "self.value_head(x)"),
        ("advantage = returns - values.detach()", "advantage = returns - values.detach().squeeze(-1)"),
        step=0,
    ),
    fault(
        "autoencoder_error_of_logarithms",
        "autoencoder",
        "unstable_op",
        ("F.mse_loss(recon, clean)", "(torch.log(F.relu(recon)) - torch.log(clean + 1e-3)).pow(2).mean()"),
        step=0,
        verdict="failing",
    ),
    fault(
        "digits_mlp_softmax_by_hand",
        "digits_mlp",
        "unstable_op",
        (
            "loss = criterion(outputs, labels)",
            (
                "e = torch.exp(outputs / 0.02)\n"
                "        loss = -torch.log(e / e.sum(1, keepdim=True))[torch.arange(len(labels)), labels].mean()"
            ),
        ),
        verdict="failing",
    ),
    # Images of other rows for the labels: to the training the same as labels of other rows.
    fault(
        "cnn_dataset_returns_another_image",
        "digits_cnn",
        ("target_misaligned", "label_noise"),
        (
            "        image = self.images[i].astype(np.float32) / 16.0\n",
            "        image = self.images[np.random.randint(len(self.images))].astype(np.float32) / 16.0\n",
        ),
        step=0,
    ),
    fault(
        "teacher_labels_drawn_anew",
        "mean_teacher",
        ("label_noise", "target_misaligned"),
        ("y_lab[i])", "y_lab[torch.randint(0, 300, (32,))])"),
        step=0,
    ),
    fault(
        "multitask_ink_of_another_row",
        "multitask",
        ("target_misaligned", "label_noise"),
        ('"ink": self.ink[i],', '"ink": self.ink[(i * 7) % len(self.x)],'),
        step=0,
    ),
    # ------------------------------------------------------------ term_without_gradient
    fault(
        "vae_sparsity_by_a_threshold",
        "vae",
        "term_without_gradient",
        (
            "        loss = elbo_loss(recon, batch, mu, logvar)\n",
            (
                "        elbo = elbo_loss(recon, batch, mu, logvar)\n"
                "        ink = (torch.sigmoid(recon) > 0.5).float().mean()\n"
                "        loss = elbo + 5.0 * ink\n"
            ),
        ),
        step=0,
    ),
)
