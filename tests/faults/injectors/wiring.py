"""What reaches what: parameters and optimizers, layers that nobody registered, graphs that are cut, ties, own gradients."""

from tests.faults.injectors.fault import fault, fine

EDITS = (
    # ------------------------------------------------------------ param_not_in_optimizer
    fault(
        "house_trunk_forgotten",
        "house",
        "param_not_in_optimizer",
        ("Adam(model.parameters(), lr=3e-3)", "Adam([*model.fc1.parameters(), *model.out.parameters()], lr=3e-3)"),
        layer="fc2",
        step=0,
    ),
    fault(
        "autoencoder_only_the_encoder",
        "autoencoder",
        "param_not_in_optimizer",
        ("optim.Adam(model.parameters(), lr=lr)", "optim.Adam(model.encoder.parameters(), lr=lr)"),
        layer=("decoder.0", "decoder"),
        step=0,
    ),
    fault(
        "multitask_one_head_forgotten",
        "multitask",
        "param_not_in_optimizer",
        (
            "Adam(model.parameters(), lr=2e-3)",
            "Adam([*model.trunk.parameters(), *model.digit_head.parameters(), *model.ink_head.parameters()], lr=2e-3)",
        ),
        layer="loop_head",
        step=0,
    ),
    fault(
        "gpt_groups_by_name_miss_the_mlp",
        "char_gpt",
        "param_not_in_optimizer",
        (
            "decay = [p for p in model.parameters() if p.dim() >= 2]",
            'decay = [p for n, p in model.named_parameters() if p.dim() >= 2 and "mlp" not in n]',
        ),
        layer=("blocks.0.mlp.0", "blocks.0.mlp"),
        step=0,
    ),
    # ------------------------------------------------------------ optimizer_stale_params
    fault(
        "cnn_head_exchanged_late",
        "digits_cnn",
        "optimizer_stale_params",
        ("    trainer.fit()\n", "    net.classifier = nn.Linear(24 * 4 * 4, 10)\n    trainer.fit()\n"),
        layer="classifier",
        step=0,
    ),
    fault(
        "digits_mlp_model_made_again",
        "digits_mlp",
        "optimizer_stale_params",
        (
            "    for epoch in range(args.epochs):\n",
            "    model = build_model(hidden=128)\n    for epoch in range(args.epochs):\n",
        ),
        step=0,
    ),
    fault(
        "rows_model_made_again_after_a_look",
        "rows_lstm",
        "optimizer_stale_params",
        (
            "opt = torch.optim.Adam(net.parameters(), lr=5e-3)\n",
            "opt = torch.optim.Adam(net.parameters(), lr=5e-3)\nprint(net(x[:1]).shape)\nnet = RowReader()\n",
        ),
        step=0,
    ),
    fault(
        "finetune_optimizer_of_the_first_model",
        "finetune",
        # The new head gets gradients and is in no optimizer; what the optimizer holds is a head of another model.
        ("optimizer_stale_params", "param_not_in_optimizer"),
        (
            "optimizer = torch.optim.Adam(model.head.parameters(), lr=5e-3)",
            "optimizer = torch.optim.Adam(first.head.parameters(), lr=5e-3)",
        ),
        verdict=("failing", "suspect"),
    ),
    fault(
        "vae_copied_after_optimizer",
        "vae",
        "optimizer_stale_params",
        ("\nfor epoch in range(9):\n", 'vae = __import__("copy").deepcopy(vae)\n\nfor epoch in range(9):\n'),
        step=0,
    ),
    # ------------------------------------------------------------ param_frozen
    fault(
        "house_layer_frozen",
        "house",
        "param_frozen",
        (
            "criterion = nn.MSELoss()\n",
            "for p in model.fc2.parameters():\n    p.requires_grad = False\ncriterion = nn.MSELoss()\n",
        ),
        layer="fc2",
        step=0,
    ),
    fault(
        "cnn_freezes_by_name_too_much",
        "digits_cnn",
        "param_frozen",
        (
            "    net = SmallConvNet()\n",
            (
                "    net = SmallConvNet()\n"
                "    for name, p in net.named_parameters():\n"
                '        if "conv" in name or "class" in name:\n'
                "            p.requires_grad_(False)\n"
            ),
        ),
        step=0,
    ),
    # A fixed first part with a trained read-out is a reservoir or a pretrained encoder: the same program, meant so.
    fine(
        "rows_recurrence_frozen",
        "rows_lstm",
        ("loss_fn = nn.CrossEntropyLoss()\n", "net.lstm.requires_grad_(False)\nloss_fn = nn.CrossEntropyLoss()\n"),
    ),
    # ------------------------------------------------------------ param_unused
    fault(
        "gpt_second_norm_forgotten",
        "char_gpt",
        "param_unused",
        ("self.mlp(self.ln_2(x))", "self.mlp(x)"),
        layer=("blocks.0.ln_2",),
        step=0,
    ),
    fault(
        "cnn_third_block_never_called",
        "digits_cnn",
        "param_unused",
        (
            "        self.pool = nn.MaxPool2d(2)\n",
            "        self.block3 = ConvBlock(24, 24)\n        self.pool = nn.MaxPool2d(2)\n",
        ),
        layer=("block3.conv", "block3"),
        step=0,
    ),
    fault(
        "house_middle_layer_not_called",
        "house",
        "param_unused",
        ("        x = torch.relu(self.fc2(x))\n", ""),
        layer="fc2",
        step=0,
    ),
    fault(
        "multitask_ink_loss_left_out",
        "multitask",
        "param_unused",
        ("return digit_loss + ink_loss + loop_loss", "return digit_loss + loop_loss"),
        layer="ink_head",
        step=0,
    ),
    # ------------------------------------------------------------ unregistered_params
    fault(
        "gpt_blocks_in_a_list",
        "char_gpt",
        "unregistered_params",
        ("nn.ModuleList([Block() for _ in range(n_layer)])", "[Block() for _ in range(n_layer)]"),
        step=0,
    ),
    fault(
        "house_hidden_layers_in_a_list",
        "house",
        "unregistered_params",
        (
            "        self.fc2 = nn.Linear(hidden, hidden)\n",
            "        self.hidden = [nn.Linear(hidden, hidden) for _ in range(2)]\n",
        ),
        (
            "        x = torch.relu(self.fc2(x))\n",
            "        for layer in self.hidden:\n            x = torch.relu(layer(x))\n",
        ),
        step=0,
    ),
    fault(
        "multitask_heads_in_a_dict",
        "multitask",
        "unregistered_params",
        (
            (
                "        self.digit_head = nn.Linear(width, 10)\n"
                "        self.ink_head = nn.Linear(width, 1)\n"
                "        self.loop_head = nn.Linear(width, 1)\n"
            ),
            '        self.heads = {"digit": nn.Linear(width, 10), "ink": nn.Linear(width, 1), "loop": nn.Linear(width, 1)}\n',
        ),
        ("self.digit_head(h)", 'self.heads["digit"](h)'),
        ("self.ink_head(h)", 'self.heads["ink"](h)'),
        ("self.loop_head(h)", 'self.heads["loop"](h)'),
        step=0,
    ),
    fault(
        "graph_weight_without_parameter",
        "graph",
        "unregistered_params",
        (
            "        self.neigh_lin = nn.Linear(n_in, n_out)\n",
            "        self.neigh_weight = torch.randn(n_in, n_out, requires_grad=True)\n",
        ),
        ("self.neigh_lin(neighbours)", "neighbours @ self.neigh_weight / self.neigh_weight.size(0) ** 0.5"),
        step=0,
    ),
    # ------------------------------------------------------------ detached_graph
    fault(
        "autoencoder_code_detached",
        "autoencoder",
        "detached_graph",
        ("recon = self.decoder(code)", "recon = self.decoder(code.detach())"),
        layer=("encoder.2", "encoder"),
        step=0,
    ),
    fault(
        "multitask_trunk_data",
        "multitask",
        "detached_graph",
        ("h = self.trunk(x)", "h = self.trunk(x).data"),
        layer=("trunk.2", "trunk.3", "trunk"),
        step=0,
    ),
    fault(
        "rows_under_no_grad",
        "rows_lstm",
        "detached_graph",
        (
            "        out, (h_n, c_n) = self.lstm(x)\n",
            "        with torch.no_grad():\n            out, (h_n, c_n) = self.lstm(x)\n",
        ),
        layer="lstm",
        step=0,
    ),
    fault(
        "house_hidden_through_numpy",
        "house",
        "detached_graph",
        (
            "        x = self.drop(x)\n",
            "        x = torch.from_numpy(np.clip(x.detach().numpy(), 0, 6))\n        x = self.drop(x)\n",
        ),
        layer="fc2",
        step=0,
    ),
    fault(
        "gan_generator_detached",
        "gan_ring",
        "detached_graph",
        ("errG = criterion(netD(fake), real_label)", "errG = criterion(netD(fake.detach()), real_label)"),
        step=0,
    ),
    fault(
        "vae_sample_rebuilt",
        "vae",
        "detached_graph",
        ("        return mu + eps * std\n", "        return torch.tensor(mu + eps * std)\n"),
        (
            "kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())",
            "kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()).item()",
        ),
        step=0,
    ),
    # ------------------------------------------------------------ zero_gradient_path
    fault(
        "autoencoder_rounded_code",
        "autoencoder",
        "zero_gradient_path",
        ("recon = self.decoder(code)", "recon = self.decoder(torch.round(code))"),
        layer=("encoder.2", "encoder"),
        step=0,
    ),
    fault(
        "house_signs",
        "house",
        "zero_gradient_path",
        ("        x = torch.relu(self.fc1(x))\n", "        x = torch.sign(self.fc1(x))\n"),
        layer="fc1",
        step=0,
    ),
    fault(
        "house_prediction_clamped_away",
        "house",
        "zero_gradient_path",
        ("        return self.out(x).squeeze(-1)", "        return self.out(x).squeeze(-1).clamp(50, 500)"),
        step=0,
    ),
    # ------------------------------------------------------------ tied_weights_broken
    fault(
        "gpt_tie_by_clone",
        "char_gpt",
        "tied_weights_broken",
        ("self.lm_head.weight = self.wte.weight\n", "self.lm_head.weight = nn.Parameter(self.wte.weight.clone())\n"),
        step=0,
    ),
    fault(
        "gpt_tie_by_data_copy",
        "char_gpt",
        "tied_weights_broken",
        ("self.lm_head.weight = self.wte.weight\n", "self.lm_head.weight.data.copy_(self.wte.weight.data)\n"),
        step=0,
    ),
    # ------------------------------------------------------------ wrong_custom_backward
    fault(
        "house_own_swish",
        "house",
        "wrong_custom_backward",
        (
            "class PriceNet(nn.Module):",
            (
                "class Swish(torch.autograd.Function):\n"
                "    @staticmethod\n"
                "    def forward(ctx, x):\n"
                "        ctx.save_for_backward(x)\n"
                "        return x * torch.sigmoid(x)\n"
                "\n"
                "    @staticmethod\n"
                "    def backward(ctx, grad):\n"
                "        (x,) = ctx.saved_tensors\n"
                "        s = torch.sigmoid(x)\n"
                "        return grad * (s - x * s * (1 - s))\n"
                "\n"
                "\n"
                "class PriceNet(nn.Module):"
            ),
        ),
        ("torch.relu(self.fc1(x))", "Swish.apply(self.fc1(x))"),
        ("torch.relu(self.fc2(x))", "Swish.apply(self.fc2(x))"),
        step=0,
    ),
    fault(
        "cnn_own_leaky_relu",
        "digits_cnn",
        "wrong_custom_backward",
        (
            "class ConvBlock(nn.Module):",
            (
                "class LeakyFunction(torch.autograd.Function):\n"
                "    @staticmethod\n"
                "    def forward(ctx, x):\n"
                "        ctx.save_for_backward(x)\n"
                "        return torch.where(x > 0, x, 0.1 * x)\n"
                "\n"
                "    @staticmethod\n"
                "    def backward(ctx, grad_output):\n"
                "        (x,) = ctx.saved_tensors\n"
                "        return torch.where(x < 0, grad_output, 0.1 * grad_output)\n"
                "\n"
                "\n"
                "class Leaky(nn.Module):\n"
                "    def forward(self, x):\n"
                "        return LeakyFunction.apply(x)\n"
                "\n"
                "\n"
                "class ConvBlock(nn.Module):"
            ),
        ),
        ("self.act = nn.ReLU(inplace=True)", "self.act = Leaky()"),
        step=0,
    ),
    fault(
        "autoencoder_own_linear_forgets_transpose",
        "autoencoder",
        "wrong_custom_backward",
        (
            "class Autoencoder(nn.Module):",
            (
                "class Scale(torch.autograd.Function):\n"
                "    @staticmethod\n"
                "    def forward(ctx, x, gain):\n"
                "        ctx.save_for_backward(x, gain)\n"
                "        return x * gain\n"
                "\n"
                "    @staticmethod\n"
                "    def backward(ctx, grad):\n"
                "        x, gain = ctx.saved_tensors\n"
                "        return -grad * gain, (grad * x).sum(0)\n"
                "\n"
                "\n"
                "class Autoencoder(nn.Module):"
            ),
        ),
        ("        self.decoder = ", "        self.gain = nn.Parameter(torch.ones(n_code))\n        self.decoder = "),
        ("recon = self.decoder(code)", "recon = self.decoder(Scale.apply(code, self.gain))"),
        step=0,
    ),
    fault(
        "graph_sign_activation",
        "graph",
        "zero_gradient_path",
        ("        x = F.relu(self.gc1(x, adj))\n", "        x = F.relu(torch.sign(self.gc1(x, adj)))\n"),
        layer=("gc1", "gc1.self_lin", "gc1.neigh_lin"),
        step=0,
    ),
)
