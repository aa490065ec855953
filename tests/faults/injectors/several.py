"""Two independent faults in one training: both must be said."""

from tests.faults.injectors.fault import fault

EDITS = (
    fault(
        "house_no_zero_grad_and_broadcast",
        "house",
        "missing_zero_grad",
        ("        optimizer.zero_grad()\n", ""),
        ("return self.out(x).squeeze(-1)", "return self.out(x)"),
        step=1,
        also="target_broadcast",
    ),
    fault(
        "digits_mlp_softmax_and_no_zero_grad",
        "digits_mlp",
        "double_softmax",
        ("        optimizer.zero_grad()\n", ""),
        ("        nn.Linear(hidden, 10),\n", "        nn.Linear(hidden, 10),\n        nn.Softmax(dim=1),\n"),
        step=0,
        also="missing_zero_grad",
    ),
    fault(
        "cnn_softmax_and_train_forgotten",
        "digits_cnn",
        "double_softmax",
        ("return self.classifier(x)", "return F.softmax(self.classifier(x), dim=1)"),
        ("        self.model.train()\n", ""),
        step=0,
        also="eval_mode_left_on",
    ),
    fault(
        "multitask_head_forgotten_and_sigmoid",
        "multitask",
        "param_not_in_optimizer",
        (
            "Adam(model.parameters(), lr=2e-3)",
            "Adam([*model.trunk.parameters(), *model.loop_head.parameters(), *model.ink_head.parameters()], lr=2e-3)",
        ),
        ('"loop": self.loop_head(h).squeeze(1),', '"loop": torch.sigmoid(self.loop_head(h)).squeeze(1),'),
        layer="digit_head",
        step=0,
        also="double_sigmoid",
    ),
    fault(
        "gpt_unused_norm_and_no_mask",
        "char_gpt",
        "param_unused",
        ("self.mlp(self.ln_2(x))", "self.mlp(x)"),
        ('        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))\n', ""),
        step=0,
        also="mask_error",
    ),
    fault(
        "house_layer_frozen_and_raw_prices",
        "house",
        "param_frozen",
        ("criterion = nn.MSELoss()\n", "model.fc2.requires_grad_(False)\ncriterion = nn.MSELoss()\n"),
        ("y_train, y_val = (y_train - y_mean) / y_std, (y_val - y_mean) / y_std\n", ""),
        layer="fc2",
        step=0,
        also="unnormalised_targets",
    ),
)
