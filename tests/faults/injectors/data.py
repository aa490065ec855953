"""The data are not what the training takes them for."""

from tests.faults.injectors.fault import fault

EDITS = (
    # ------------------------------------------------------------ unnormalised_inputs
    fault(
        "house_raw_columns",
        "house",
        "unnormalised_inputs",
        ("x_train, x_val = (x_train - mean) / std, (x_val - mean) / std\n", ""),
        step=0,
    ),
    fault(
        "cnn_offset_pixels",
        "digits_cnn",
        "unnormalised_inputs",
        (
            "        image = self.images[i].astype(np.float32) / 16.0\n        image = (image - 0.305) / 0.376\n",
            "        image = self.images[i].astype(np.float32) * 64.0\n",
        ),
        ("        self.bn = nn.BatchNorm2d(c_out)\n", "        self.bn = nn.Identity()\n"),
        ("c_in, c_out, kernel_size=3, padding=1, bias=False", "c_in, c_out, kernel_size=3, padding=1"),
        step=0,
    ),
    fault(
        "graph_raw_features",
        "graph",
        "unnormalised_inputs",
        ("    return features, adj, labels\n", "    return 1000 + 300 * features, adj, labels\n"),
        step=0,
    ),
    fault(
        "accumulate_one_column_in_other_units",
        "accumulate",
        "unnormalised_inputs",
        ("inputs = (inputs - inputs.mean(0)) / inputs.std(0)\n", "inputs[:, 3] = inputs[:, 3] * 5000 + 20000\n"),
        step=0,
    ),
    # ------------------------------------------------------------ unnormalised_targets
    fault(
        "house_raw_prices",
        "house",
        "unnormalised_targets",
        ("y_train, y_val = (y_train - y_mean) / y_std, (y_val - y_mean) / y_std\n", ""),
        step=0,
    ),
    fault(
        "multitask_ink_in_raw_units",
        "multitask",
        "unnormalised_targets",
        ("        self.ink = (ink - ink.mean()) / ink.std()\n", "        self.ink = 100 * ink\n"),
        step=0,
    ),
    fault(
        "house_prices_in_euro",
        "house",
        "unnormalised_targets",
        (
            "y_train, y_val = (y_train - y_mean) / y_std, (y_val - y_mean) / y_std\n",
            "y_train, y_val = 1000 * y_train, 1000 * y_val\n",
        ),
        step=0,
    ),
    # ------------------------------------------------------------ double_normalisation
    fault(
        "digits_mlp_scaled_twice",
        "digits_mlp",
        "double_normalisation",
        ("    images = (images - images.mean()) / images.std()\n", "    images = images / 255.0\n"),
        step=0,
    ),
    fault(
        "cnn_divided_twice",
        "digits_cnn",
        "double_normalisation",
        ("        image = (image - 0.305) / 0.376\n", "        image = (image / 255.0 - 0.305) / 0.376\n"),
        (
            "image = image + np.random.normal(0, 0.05, image.shape).astype(np.float32)",
            "image = image[::-1].copy() if np.random.rand() < 0.1 else image",
        ),
        step=0,
    ),
    fault(
        "rows_scaled_twice",
        "rows_lstm",
        "double_normalisation",
        ("x = (x - x.mean()) / x.std()\n", "x = x / 255\n"),
        step=0,
    ),
    # ------------------------------------------------------------ nonfinite_input
    fault(
        "house_missing_values",
        "house",
        "nonfinite_input",
        ("n_train = 705\n", "features[np.random.rand(*features.shape) < 0.01] = np.nan\nn_train = 705\n"),
        ("x_train.mean(0), x_train.std(0)", "np.nanmean(x_train, 0), np.nanstd(x_train, 0)"),
        step=0,
        verdict="failing",
    ),
    fault(
        "rows_log_of_zero_pixels",
        "rows_lstm",
        "nonfinite_input",
        ("x = (x - x.mean()) / x.std()\n", "x = torch.log(x)\n"),
        step=0,
        verdict="failing",
    ),
    fault(
        "cnn_one_broken_file",
        "digits_cnn",
        "nonfinite_input",
        (
            "        image = (image - 0.305) / 0.376\n",
            (
                "        image = (image - 0.305) / 0.376\n"
                "        if i == 11:\n"
                "            image = image / image[0, 0] / 0 if image[0, 0] == 0 else np.full_like(image, np.nan)\n"
            ),
        ),
        verdict="failing",
    ),
    fault(
        "autoencoder_constant_column",
        "autoencoder",
        "nonfinite_input",
        (
            "    return torch.as_tensor(pixels, dtype=torch.float32) / 16\n",
            (
                "    pixels = torch.as_tensor(pixels, dtype=torch.float32)\n"
                "    return (pixels - pixels.mean(0)) / pixels.std(0)\n"
            ),
        ),
        step=0,
        verdict="failing",
    ),
    # ------------------------------------------------------------ bad_batch
    fault(
        "house_one_row_in_other_units",
        "house",
        "bad_batch",
        ("batch_size = 32\n", "batch_size = 32\nx_train[400] *= 100_000\n"),
    ),
    fault(
        "autoencoder_broken_image",
        "autoencoder",
        "bad_batch",
        ("        noisy = clean + 0.1", "        clean[0] *= 1e4 if step == 120 else 1\n        noisy = clean + 0.1"),
        step=120,
    ),
    fault(
        "cnn_image_of_another_range",
        "digits_cnn",
        "bad_batch",
        (
            "        image = (image - 0.305) / 0.376\n",
            "        image = (image - 0.305) / 0.376\n        if i == 100:\n            image = image * 30000\n",
        ),
        ("        self.bn = nn.BatchNorm2d(c_out)\n", "        self.bn = nn.Identity()\n"),
    ),
    fault(
        "house_target_typo", "house", "bad_batch", ("batch_size = 32\n", "batch_size = 32\ny_train[123] = 50_000.0\n")
    ),
    # ------------------------------------------------------------ degenerate_batch
    fault(
        "teacher_batch_of_one",
        "mean_teacher",
        "degenerate_batch",
        (
            (
                "        i, j = torch.randint(0, len(x_lab), (32,)), torch.randint(0, len(x_unl), (64,))\n"
                "        logits = student(noisy(torch.cat([x_lab[i], x_unl[j]])))\n"
            ),
            (
                "        i, j = torch.randint(0, len(x_lab), (32,)), torch.randint(0, len(x_unl), (64,))\n"
                "        if step == 75:\n"
                "            i = i[:1]\n"
                "            loss = F.cross_entropy(student(noisy(x_lab[i])), y_lab[i])\n"
                "        logits = student(noisy(torch.cat([x_lab[i], x_unl[j]])))\n"
            ),
        ),
        raises=True,
        step=75,
        verdict=("failing", "suspect", "inconclusive"),
    ),
    fault(
        "house_last_batch_standardised_alone",
        "house",
        "degenerate_batch",
        ("range(0, len(x_train) - batch_size + 1, batch_size)", "range(0, len(x_train), batch_size)"),
        ("        pred = model(xb)\n", "        xb = (xb - xb.mean(0)) / xb.std(0)\n        pred = model(xb)\n"),
        step=22,
        verdict="failing",
    ),
    fault(
        "digits_mlp_batch_norm_and_last_batch_of_one",
        "digits_mlp",
        "degenerate_batch",
        (
            "        nn.Linear(64, hidden),\n        nn.ReLU(),\n",
            "        nn.Linear(64, hidden),\n        nn.BatchNorm1d(hidden),\n        nn.ReLU(),\n",
        ),
        ("images[:1400], labels[:1400]", "images[:1401], labels[:1401]"),
        (", drop_last=True", ""),
        raises=True,
        step=28,
        verdict=("failing", "suspect", "inconclusive"),
    ),
    # ------------------------------------------------------------ unshuffled_data
    fault(
        "digits_mlp_sorted",
        "digits_mlp",
        "unshuffled_data",
        (
            "    images, labels = images[perm], labels[perm]\n",
            (
                "    images, labels = images[perm], labels[perm]\n"
                "    images, labels = images[labels.argsort()], labels[labels.argsort()]\n"
            ),
        ),
        ("shuffle=True", "shuffle=False"),
        step=0,
    ),
    fault(
        "cnn_sorted_files",
        "digits_cnn",
        "unshuffled_data",
        (
            "    train_set = DigitDataset(",
            (
                '    order = np.argsort(y_train, kind="stable")\n'
                "    x_train, y_train = x_train[order], y_train[order]\n"
                "    train_set = DigitDataset("
            ),
        ),
        ("shuffle=True, drop_last=True", "shuffle=False"),
        step=0,
    ),
    fault(
        "accumulate_class_by_class",
        "accumulate",
        "unshuffled_data",
        ("labels = torch.randint(0, 5, (1600,))", "labels = torch.arange(5).repeat_interleave(320)"),
        ("shuffle=True", "shuffle=False"),
        step=0,
    ),
    # ------------------------------------------------------------ label_noise
    fault(
        "rows_random_labels",
        "rows_lstm",
        ("label_noise", "target_misaligned"),
        ("y = torch.tensor(y, dtype=torch.long)\n", "y = torch.randint(0, 10, (len(y),))\n"),
        step=0,
    ),
    fault(
        "graph_random_labels",
        "graph",
        ("label_noise", "target_misaligned"),
        (
            "    train_mask = torch.rand(len(labels)) < 0.6\n",
            "    train_mask = torch.rand(len(labels)) < 0.6\n    labels = torch.randint(0, 4, (len(labels),))\n",
        ),
        step=0,
    ),
    fault(
        "accumulate_random_labels",
        "accumulate",
        ("label_noise", "target_misaligned"),
        ("loader = DataLoader(", "labels = labels[torch.randperm(1600)]\nloader = DataLoader("),
        step=0,
    ),
    # ------------------------------------------------------------ class_imbalance
    fault(
        "accumulate_rare_class",
        "accumulate",
        "class_imbalance",
        ("labels = torch.randint(0, 5, (1600,))", "labels = (torch.rand(1600) < 0.04).long()"),
        ("centres = 2.2 * torch.randn(5, 12)", "centres = 0.6 * torch.randn(5, 12)"),
        ("lr=0.1", "lr=0.005"),
        step=0,
    ),
    fault(
        "rows_one_digit_against_all",
        "rows_lstm",
        "class_imbalance",
        (
            "y = torch.tensor(y, dtype=torch.long)\n",
            "y = torch.tensor((y == 8) & (torch.rand(len(y)).numpy() < 0.3), dtype=torch.long)\n",
        ),
        ("num_classes=10", "num_classes=2"),
        ("lr=5e-3", "lr=2e-4"),
        step=0,
    ),
    # ------------------------------------------------------------ train_val_leak
    fault(
        "digits_mlp_validates_on_training_part",
        "digits_mlp",
        "train_val_leak",
        ("TensorDataset(images[1400:], labels[1400:])", "TensorDataset(images[1000:], labels[1000:])"),
    ),
    fault(
        "cnn_validates_on_training_images",
        "digits_cnn",
        "train_val_leak",
        ("val_set = DigitDataset(x_val, y_val)", "val_set = DigitDataset(x_train, y_train)"),
        ("augment=True)", "augment=False)"),
    ),
    fault(
        "house_price_among_the_columns",
        "house",
        "train_val_leak",
        (
            "features = np.stack([rooms, area, age, distance, income, floor], 1)",
            "features = np.stack([rooms, area, age, distance, income, floor, price], 1)",
        ),
        step=0,
    ),
    # ------------------------------------------------------------ split_skew
    fault(
        "house_validation_not_standardised",
        "house",
        "split_skew",
        ("x_train, x_val = (x_train - mean) / std, (x_val - mean) / std", "x_train = (x_train - mean) / std"),
        step=22,
    ),
    fault(
        "cnn_validation_not_scaled",
        "digits_cnn",
        "split_skew",
        (
            "        image = self.images[i].astype(np.float32) / 16.0\n        image = (image - 0.305) / 0.376\n",
            (
                "        image = self.images[i].astype(np.float32)\n"
                "        if self.augment:\n"
                "            image = (image / 16.0 - 0.305) / 0.376\n"
            ),
        ),
        step=26,
    ),
    fault(
        "digits_mlp_test_part_raw",
        "digits_mlp",
        "split_skew",
        (
            "TensorDataset(images[1400:], labels[1400:])",
            "TensorDataset(torch.tensor(digits.data, dtype=torch.float32)[perm][1400:], labels[1400:])",
        ),
        step=28,
    ),
    # ------------------------------------------------------------ duplicate_worker_rng
    fault(
        "cnn_workers_seeded_alike",
        "digits_cnn",
        "duplicate_worker_rng",
        (
            "train_loader = DataLoader(train_set, batch_size=48, shuffle=True, drop_last=True)",
            (
                "train_loader = DataLoader(\n"
                "        train_set, batch_size=48, shuffle=True, drop_last=True, num_workers=2, worker_init_fn=lambda i: np.random.seed(0)\n"
                "    )"
            ),
        ),
        ("epochs=6", "epochs=3"),
    ),
    fault(
        "cnn_generator_copied_into_workers",
        "digits_cnn",
        "duplicate_worker_rng",
        (
            "        self.augment = augment\n",
            "        self.augment = augment\n        self.rng = np.random.default_rng(1)\n",
        ),
        ("np.random.normal(0, 0.05, image.shape)", "self.rng.normal(0, 0.05, image.shape)"),
        (
            "train_loader = DataLoader(train_set, batch_size=48, shuffle=True, drop_last=True)",
            "train_loader = DataLoader(train_set, batch_size=48, shuffle=True, drop_last=True, num_workers=2)",
        ),
        ("epochs=6", "epochs=3"),
    ),
    # ------------------------------------------------------------ input_ignored
    fault(
        "house_standardised_by_itself",
        "house",
        "input_ignored",
        (
            "        x = torch.relu(self.fc1(x))\n",
            "        x = (x - x) / (x.std() + 1e-6)\n        x = torch.relu(self.fc1(x))\n",
        ),
        step=0,
    ),
    fault(
        "gpt_forgets_the_tokens",
        "char_gpt",
        "input_ignored",
        ("x = self.wte(idx) + self.wpe(pos)", "x = self.wpe(pos).expand(idx.size(0), -1, -1)"),
        step=0,
    ),
    fault(
        "vae_decodes_noise", "vae", "input_ignored", ("        return mu + eps * std\n", "        return eps\n"), step=0
    ),
    fault(
        "policy_sees_nothing",
        "policy",
        "input_ignored",
        (
            "        return F.one_hot(self.place, self.length).float()",
            "        return F.one_hot(self.place, self.length).float() * 0",
        ),
        step=0,
    ),
    # ------------------------------------------------------------ mask_error
    fault(
        "gpt_without_mask",
        "char_gpt",
        "mask_error",
        ('        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))\n', ""),
        step=0,
    ),
    fault(
        "gpt_mask_upside_down",
        "char_gpt",
        "mask_error",
        ("torch.tril(torch.ones(block_size, block_size))", "torch.triu(torch.ones(block_size, block_size))"),
        step=0,
    ),
    fault(
        "gpt_mask_one_too_far",
        "char_gpt",
        "mask_error",
        (
            "torch.tril(torch.ones(block_size, block_size))",
            "torch.tril(torch.ones(block_size, block_size), diagonal=1)",
        ),
        step=0,
    ),
    fault(
        "tagger_attends_to_padding_only",
        "tagger",
        "mask_error",
        ("padding = words == PAD", "padding = words != PAD"),
        ("key_padding_mask=padding)", "key_padding_mask=padding & padding.logical_not().any(1, keepdim=True))"),
        step=0,
    ),
    # ------------------------------------------------------------ batch_axis_mixup
    fault(
        "rows_batch_first_forgotten",
        "rows_lstm",
        "batch_axis_mixup",
        (", batch_first=True)", ")"),
        layer="lstm",
        step=0,
    ),
    fault(
        "tagger_attention_over_the_batch",
        "tagger",
        "batch_axis_mixup",
        ("nn.MultiheadAttention(2 * hidden, 2, batch_first=True)", "nn.MultiheadAttention(2 * hidden, 2)"),
        ("self.attn(h, h, h, key_padding_mask=padding)", "self.attn(h, h, h)"),
        layer="attn",
        step=0,
    ),
    fault(
        "house_normalises_over_the_batch",
        "house",
        "batch_axis_mixup",
        ("        x = self.drop(x)\n", "        x = self.drop(x)\n        x = x.softmax(0) * 8\n"),
        step=0,
    ),
    fault(
        "rows_reads_an_empty_buffer",
        "rows_lstm",
        "input_ignored",
        (
            "        out, (h_n, c_n) = self.lstm(x)\n",
            "        rows = torch.zeros_like(x)\n        out, (h_n, c_n) = self.lstm(rows)\n",
        ),
        step=0,
    ),
    fault(
        "rows_reshaped_instead_of_transposed",
        "rows_lstm",
        "batch_axis_mixup",
        (
            "        out, (h_n, c_n) = self.lstm(x)\n",
            (
                "        x = x.reshape(x.size(1), x.size(0), x.size(2)).transpose(0, 1)\n"
                "        out, (h_n, c_n) = self.lstm(x)\n"
            ),
        ),
        step=0,
    ),
    fault(
        "gpt_softmax_over_the_batch",
        "char_gpt",
        "batch_axis_mixup",
        (
            (
                '        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))\n'
                "        att = F.softmax(att, dim=-1)\n"
            ),
            "        att = F.softmax(att, dim=0)\n        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, 0.0)\n",
        ),
        step=0,
    ),
    # ------------------------------------------------------------ dataset_overwritten
    fault(
        "cnn_noise_in_place",
        "digits_cnn",
        "dataset_overwritten",
        (
            "        self.images = images\n",
            "        self.images = ((images / 16 - 0.305) / 0.376).astype(np.float32)\n",
        ),
        (
            "        image = self.images[i].astype(np.float32) / 16.0\n        image = (image - 0.305) / 0.376\n",
            "        image = self.images[i]\n",
        ),
        (
            "            image = image + np.random.normal(0, 0.05, image.shape).astype(np.float32)\n",
            "            image += np.random.normal(0, 0.4, image.shape)\n",
        ),
    ),
    # ------------------------------------------------------------ channels_interleaved
    fault(
        "cnn_colours_by_view",
        "digits_cnn",
        "channels_interleaved",
        (
            "        return torch.from_numpy(image)[None], int(self.labels[i])\n",
            (
                "        tint = np.array([1.0, 0.3, -0.6], dtype=np.float32) * (1 + i % 3)\n"
                "        image = torch.from_numpy(image[..., None] * tint)  # (8, 8, 3)\n"
                "        return image.view(3, 8, 8), int(self.labels[i])\n"
            ),
        ),
        ("self.block1 = ConvBlock(1, 12)", "self.block1 = ConvBlock(3, 12)"),
        step=0,
    ),
)
