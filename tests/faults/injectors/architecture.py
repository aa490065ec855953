"""The network itself: initial weights, depth, activations, norms, dropout, attention, capacity."""

from tests.faults.injectors.byol import BYOL
from tests.faults.injectors.fault import fault

EDITS = (
    # ------------------------------------------------------------ symmetric_init
    fault(
        "house_weights_zero",
        "house",
        "symmetric_init",
        (
            "criterion = nn.MSELoss()\n",
            "for p in model.parameters():\n    nn.init.zeros_(p)\ncriterion = nn.MSELoss()\n",
        ),
        step=0,
    ),
    fault(
        "digits_mlp_weights_alike",
        "digits_mlp",
        "symmetric_init",
        (
            "    return model\n",
            (
                "    for layer in model:\n"
                "        if isinstance(layer, nn.Linear):\n"
                "            nn.init.constant_(layer.weight, 0.02)\n"
                "            nn.init.zeros_(layer.bias)\n"
                "    return model\n"
            ),
        ),
        step=0,
    ),
    fault(
        "autoencoder_weights_alike",
        "autoencoder",
        "symmetric_init",
        ("    model.train()\n", "    for p in model.parameters():\n        p.data.fill_(0.05)\n    model.train()\n"),
        step=0,
    ),
    # ------------------------------------------------------------ init_scale_wrong
    fault(
        "digits_mlp_normal_1",
        "digits_mlp",
        "init_scale_wrong",
        (
            "    return model\n",
            (
                "    for layer in model:\n"
                "        if isinstance(layer, nn.Linear):\n"
                "            nn.init.normal_(layer.weight)\n"
                "    return model\n"
            ),
        ),
        step=0,
    ),
    fault(
        "cnn_normal_3_without_norm",
        "digits_cnn",
        "init_scale_wrong",
        ("        self.bn = nn.BatchNorm2d(c_out)\n", "        self.bn = nn.Identity()\n"),
        (
            "    net = SmallConvNet()\n",
            "    net = SmallConvNet()\n    for p in net.parameters():\n        nn.init.normal_(p, std=3.0)\n",
        ),
        step=0,
    ),
    fault(
        "autoencoder_tiny_weights",
        "autoencoder",
        "init_scale_wrong",
        (
            "    model.train()\n",
            (
                "    for m in model.modules():\n"
                "        if isinstance(m, nn.Linear):\n"
                "            nn.init.normal_(m.weight, std=1e-5)\n"
                "    model.train()\n"
            ),
        ),
        ("optim.Adam(model.parameters(), lr=lr)", "optim.SGD(model.parameters(), lr=0.1)"),
        step=0,
    ),
    fault("gpt_std_2", "char_gpt", "init_scale_wrong", ("std=0.05", "std=2.0"), step=0),
    # ------------------------------------------------------------ vanishing_depth
    fault(
        "digits_mlp_deep_sigmoid",
        "digits_mlp",
        "vanishing_depth",
        (
            "        nn.ReLU(),\n        nn.Linear(hidden, hidden),\n        nn.ReLU(),\n        nn.Dropout(0.1),\n",
            "        nn.Sigmoid(),\n" + "        nn.Linear(hidden, hidden),\n        nn.Sigmoid(),\n" * 7,
        ),
        step=0,
    ),
    fault(
        "autoencoder_deep_sigmoid",
        "autoencoder",
        "vanishing_depth",
        (
            "nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, n_code))",
            (
                "nn.Sequential(\n"
                "            *[m for _ in range(8) for m in (nn.Linear(64, 64), nn.Sigmoid())], nn.Linear(64, n_code)\n"
                "        )"
            ),
        ),
        ("optim.Adam(model.parameters(), lr=lr)", "optim.SGD(model.parameters(), lr=0.1)"),
        step=0,
    ),
    fault(
        "rows_long_plain_rnn",
        "rows_lstm",
        "vanishing_depth",
        ("nn.LSTM(input_size", "nn.RNN(input_size"),
        (
            "out, (h_n, c_n) = self.lstm(x)",
            "out, h_n = self.lstm(torch.cat([x, x.new_zeros(x.size(0), 120, x.size(2))], 1))",
        ),
        ("torch.optim.Adam(net.parameters(), lr=5e-3)", "torch.optim.SGD(net.parameters(), lr=0.05)"),
        ("range(5)", "range(3)"),
        step=0,
    ),
    # ------------------------------------------------------------ exploding_depth
    fault(
        "graph_sum_over_many_rounds",
        "graph",
        "exploding_depth",
        ("neighbours = adj @ x / degree", "neighbours = adj @ x"),
        (
            "        x = F.relu(self.gc2(x, adj))\n",
            "        for _ in range(12):\n            x = F.relu(self.gc2(x, adj))\n",
        ),
        step=0,
    ),
    fault(
        "rows_relu_recurrence",
        "rows_lstm",
        "exploding_depth",
        (
            "nn.LSTM(input_size, hidden_size, batch_first=True)",
            'nn.RNN(input_size, hidden_size, batch_first=True, nonlinearity="relu")',
        ),
        ("out, (h_n, c_n) = self.lstm(x)", "out, h_n = self.lstm(x.repeat(1, 8, 1))"),
        (
            "        self.fc = nn.Linear(",
            "        nn.init.kaiming_normal_(self.lstm.weight_hh_l0)\n        self.fc = nn.Linear(",
        ),
        ("        nn.utils.clip_grad_norm_(net.parameters(), 5.0)\n", ""),
        ("torch.optim.Adam(net.parameters(), lr=5e-3)", "torch.optim.SGD(net.parameters(), lr=0.05)"),
        step=0,
    ),
    fault(
        "house_residual_tower_without_norm",
        "house",
        "exploding_depth",
        (
            "        self.drop = nn.Dropout(0.1)\n",
            (
                "        self.more = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(40))\n"
                "        self.drop = nn.Dropout(0.1)\n"
            ),
        ),
        (
            "        x = self.drop(x)\n",
            "        for layer in self.more:\n            x = x + torch.relu(layer(x))\n        x = self.drop(x)\n",
        ),
        ("torch.optim.Adam(model.parameters(), lr=3e-3)", "torch.optim.SGD(model.parameters(), lr=1e-3)"),
        ("range(12)", "range(4)"),
        step=0,
    ),
    # ------------------------------------------------------------ dead_relu
    fault(
        "house_bias_minus_10",
        "house",
        "dead_relu",
        ("criterion = nn.MSELoss()\n", "nn.init.constant_(model.fc2.bias, -10.0)\ncriterion = nn.MSELoss()\n"),
        layer="fc2",
        step=0,
    ),
    fault(
        "digits_mlp_dead_first_layer",
        "digits_mlp",
        "dead_relu",
        ("    return model\n", "    nn.init.constant_(model[0].bias, -20.0)\n    return model\n"),
        layer=("1", "0"),
        step=0,
    ),
    fault(
        "cnn_norm_bias_dead",
        "digits_cnn",
        "dead_relu",
        (
            "        self.act = nn.ReLU(inplace=True)\n",
            "        nn.init.constant_(self.bn.bias, -6.0)\n        self.act = nn.ReLU(inplace=True)\n",
        ),
        layer=("block1.act", "block1.bn", "block2.act", "block2.bn"),
        step=0,
    ),
    # ------------------------------------------------------------ saturating_activation
    # ------------------------------------------------------------ missing_activation
    fault(
        "house_without_activations",
        "house",
        "missing_activation",
        ("torch.relu(self.fc1(x))", "self.fc1(x)"),
        ("torch.relu(self.fc2(x))", "self.fc2(x)"),
        step=0,
    ),
    fault(
        "digits_mlp_without_activations", "digits_mlp", "missing_activation", ("        nn.ReLU(),\n", "", 2), step=0
    ),
    fault(
        "multitask_trunk_without_activations",
        "multitask",
        "missing_activation",
        (
            "nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()",
            "nn.Linear(64, width), nn.Linear(width, width)",
        ),
        step=0,
    ),
    # ------------------------------------------------------------ dropout_too_high
    fault(
        "digits_mlp_dropout_095",
        "digits_mlp",
        "dropout_too_high",
        ("nn.Dropout(0.1)", "nn.Dropout(0.97)"),
        layer="4",
        step=0,
    ),
    fault(
        "cnn_keep_probability_taken_for_p",
        "digits_cnn",
        "dropout_too_high",
        ("nn.Dropout(0.25)", "nn.Dropout(0.98)"),
        layer="dropout",
        step=0,
    ),
    fault(
        "house_dropout_095", "house", "dropout_too_high", ("nn.Dropout(0.1)", "nn.Dropout(0.95)"), layer="drop", step=0
    ),
    # ------------------------------------------------------------ batchnorm_small_batch
    fault(
        "teacher_batches_of_two",
        "mean_teacher",
        "batchnorm_small_batch",
        ("(32,)", "(1,)"),
        ("(64,)", "(1,)"),
        ("logits[:32]", "logits[:1]"),
        ("logits[32:]", "logits[1:]"),
        step=0,
    ),
    # ------------------------------------------------------------ batchnorm_momentum
    fault(
        "cnn_momentum_of_another_library",
        "digits_cnn",
        "batchnorm_momentum",
        ("nn.BatchNorm2d(c_out)", "nn.BatchNorm2d(c_out, momentum=0.99)"),
        layer=("block1.bn", "block2.bn"),
        step=0,
    ),
    fault(
        "cnn_momentum_zero",
        "digits_cnn",
        "batchnorm_momentum",
        ("nn.BatchNorm2d(c_out)", "nn.BatchNorm2d(c_out, momentum=0.0)"),
        layer=("block1.bn", "block2.bn"),
        step=0,
    ),
    fault(
        "teacher_momentum_1e_5",
        "mean_teacher",
        "batchnorm_momentum",
        ("nn.BatchNorm1d(64)", "nn.BatchNorm1d(64, momentum=1e-5)"),
        layer="1",
        step=0,
    ),
    # ------------------------------------------------------------ frozen_norm_drift
    fault(
        "finetune_frozen_part_in_train_mode",
        "finetune",
        "frozen_norm_drift",
        ("model.backbone.eval()\n", "model.train()\n"),
    ),
    # ------------------------------------------------------------ attention_collapse
    fault(
        "gpt_scores_not_scaled",
        "char_gpt",
        "attention_collapse",
        (
            "(q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))",
            "(q @ k.transpose(-2, -1)) * math.sqrt(k.size(-1)) * 400",
        ),
        step=0,
    ),
    # ------------------------------------------------------------ rank_collapse
    fault(
        "graph_oversmoothed",
        "graph",
        "rank_collapse",
        (
            "        x = F.relu(self.gc2(x, adj))\n",
            "        for _ in range(32):\n            x = F.relu(self.gc2(x, adj))\n",
        ),
        ("return self.self_lin(x) + self.neigh_lin(neighbours)", "return self.neigh_lin((neighbours + x) / 2)"),
        ("        self.self_lin = nn.Linear(n_in, n_out)\n", ""),
        step=0,
    ),
    fault(
        "gpt_without_residuals",
        "char_gpt",
        "rank_collapse",
        (
            "        x = x + self.attn(self.ln_1(x))\n        x = x + self.mlp(self.ln_2(x))\n",
            "        x = self.attn(x)\n",
        ),
        (
            "        self.ln_1 = nn.LayerNorm(n_embd)\n        self.attn = CausalSelfAttention()\n",
            "        self.attn = CausalSelfAttention()\n",
        ),
        (
            (
                "        self.ln_2 = nn.LayerNorm(n_embd)\n"
                "        self.mlp = nn.Sequential("
                "nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))\n"
            ),
            "",
        ),
        ("n_layer = 2\n", "n_layer = 8\n"),
        ("args.steps):", "100):"),
        step=0,
    ),
    # ------------------------------------------------------------ capacity_too_small
    fault("autoencoder_code_of_one", "autoencoder", "capacity_too_small", ("n_code=16", "n_code=1"), step=0),
    fault("tagger_one_unit", "tagger", "capacity_too_small", ("dim=24, hidden=24", "dim=2, hidden=1"), step=0),
    # ------------------------------------------------------------ mode_collapse
    fault(
        "gan_generator_ignores_noise",
        "gan_ring",
        "mode_collapse",
        (
            "lr=1e-3, betas=(0.5, 0.999))\noptimizerG = torch.optim.Adam(netG.parameters(), lr=1e-3",
            "lr=1e-5, betas=(0.5, 0.999))\noptimizerG = torch.optim.Adam(netG.parameters(), lr=1e-2",
        ),
        ("nn.Linear(48, 2),\n", "nn.Linear(48, 2),\n            nn.Tanh(),\n"),
    ),
    fault(
        "gan_noise_too_small",
        "gan_ring",
        "mode_collapse",
        ("torch.randn(batch_size, nz)", "1e-3 * torch.randn(batch_size, nz)"),
    ),
    # A linear probe on its codes falls from 0.75 to 0.70 in 200 steps, and 1 - cosine to 1e-4.
    fault("simclr_byol_without_norm", "simclr", "mode_collapse", *BYOL, verdict=("suspect", "failing")),
    # ------------------------------------------------------------ plasticity_loss
    # A steep tanh has no other fault than its bounds: weights and inputs are as they should be.
    fault(
        "house_steep_tanh",
        "house",
        "saturating_activation",
        ("torch.relu(self.fc1(x))", "torch.tanh(100 * self.fc1(x))"),
        ("torch.relu(self.fc2(x))", "torch.tanh(100 * self.fc2(x))"),
        step=0,
    ),
    fault(
        "digits_mlp_steep_sigmoid",
        "digits_mlp",
        "saturating_activation",
        (
            "def build_model(hidden=64):",
            (
                "class Steep(nn.Sigmoid):\n"
                "    def forward(self, x):\n"
                "        return super().forward(80 * x)\n"
                "\n"
                "\n"
                "def build_model(hidden=64):"
            ),
        ),
        ("        nn.ReLU(),\n", "        Steep(),\n", 2),
        step=0,
    ),
    fault(
        "digits_mlp_two_hidden_units",
        "digits_mlp",
        "capacity_too_small",
        ("hidden=64", "hidden=2"),
        ("nn.Dropout(0.1)", "nn.Identity()"),
        ("nn.ReLU()", "nn.Tanh()", 2),
        step=0,
    ),
    # ------------------------------------------------------------ members_alike
    fault(
        "house_ensemble_of_one_seed",
        "house",
        "members_alike",
        (
            "model = PriceNet(x_train.shape[1])\n",
            (
                "class Ensemble(nn.Module):\n"
                "    def __init__(self, n_members):\n"
                "        super().__init__()\n"
                "        self.members = nn.ModuleList()\n"
                "        for _ in range(n_members):\n"
                "            torch.manual_seed(seed)\n"
                "            self.members.append(PriceNet(x_train.shape[1]))\n"
                "\n"
                "    def forward(self, x):\n"
                "        return torch.stack([member(x) for member in self.members])\n"
                "\n"
                "\n"
                "model = Ensemble(3)\n"
            ),
        ),
        ("        self.drop = nn.Dropout(0.1)\n", ""),
        ("        x = self.drop(x)\n", ""),
        ("criterion(pred, yb)", "criterion(pred, yb.expand(3, -1))"),
        ("criterion(model(x_val), y_val)", "criterion(model(x_val).mean(0), y_val)"),
        step=1,
    ),
)
