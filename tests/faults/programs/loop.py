"""The training program is wired wrongly."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.faults.corpus import program
from tests.faults.kit import (
    AutoEncoder,
    CharGpt,
    ConvNet,
    Mlp,
    RowLstm,
    adam,
    batches,
    char_batches,
    char_loss,
    diabetes,
    digits,
    fit,
    flat_digits,
    pictures,
    sgd,
)
from torch import Tensor, nn


@program("convnet", "missing_zero_grad", step=1)
def zero_grad_forgotten_convnet() -> None:
    model = ConvNet()
    optimizer = sgd(model, 0.05, momentum=0.9)
    for x, y in batches(digits(), 120):
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@program("lstm", "missing_zero_grad", step=1)
def zero_grad_forgotten_lstm_adam() -> None:
    model = RowLstm()
    optimizer = adam(model, 3e-3)
    for x, y in batches(digits(), 150):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


@program("mlp", "missing_zero_grad", step=1)
def zero_grad_forgotten_regression() -> None:
    model = Mlp(10, 1)
    optimizer = sgd(model, 0.02)
    for x, y in batches(diabetes(), 200):
        F.mse_loss(model(x), y).backward()
        optimizer.step()


@program("mlp", "param_not_in_optimizer", layer="fc2", step=0)
def middle_layer_not_in_optimizer() -> None:
    model = Mlp(depth=4)
    chosen = [p for name, p in model.named_parameters() if not name.startswith("fc2")]
    fit(model, torch.optim.SGD(chosen, 0.2), batches(flat_digits(), 200))


@program("transformer", "param_not_in_optimizer", layer="head", step=0)
def head_not_in_optimizer_transformer() -> None:
    model = CharGpt()
    chosen = [p for name, p in model.named_parameters() if not name.startswith("head")]
    fit(model, torch.optim.AdamW(chosen, 3e-3), char_batches(100), char_loss)


@program("autoencoder", "param_not_in_optimizer", layer="dec1", step=0)
def decoder_not_in_optimizer() -> None:
    model = AutoEncoder()
    encoder = [*model.enc1.parameters(), *model.enc2.parameters()]
    fit(model, torch.optim.Adam(encoder, 1e-3), batches(pictures(), 150), F.mse_loss)


@program("mlp", "optimizer_stale_params", step=0, verdict="failing")
def optimizer_of_an_earlier_model() -> None:
    model = Mlp()
    optimizer = sgd(model, 0.1)
    model = Mlp()
    fit(model, optimizer, batches(flat_digits(), 150))


@program("convnet", "optimizer_stale_params", layer="fc", step=0)
def head_exchanged_after_optimizer() -> None:
    model = ConvNet()
    optimizer = adam(model, 1e-3)
    model.fc = nn.Linear(24 * 16, 10)
    fit(model, optimizer, batches(digits(), 120))


@program("mlp", "param_frozen", layer="fc3", step=0)
def middle_layer_frozen() -> None:
    model = Mlp(depth=5)
    model.get_submodule("fc3").requires_grad_(requires_grad=False)
    fit(model, sgd(model, 0.2), batches(flat_digits(), 200))


@program("convnet", "param_frozen", layer="fc", step=0)
def output_layer_frozen() -> None:
    model = ConvNet()
    for name, parameter in model.named_parameters():
        if "fc" in name:
            parameter.requires_grad = False
    fit(model, adam(model, 1e-3), batches(digits(), 120))


@program("mlp", "param_unused", layer="extra", step=0)
def layer_never_called() -> None:
    class Net(Mlp):
        def __init__(self) -> None:
            super().__init__()
            self.extra = nn.Linear(64, 64)

    model = Net()
    fit(model, sgd(model, 0.1), batches(flat_digits(), 150))


@program("autoencoder", "param_unused", layer="side", step=0)
def output_cut_off() -> None:
    class Net(AutoEncoder):
        def __init__(self) -> None:
            super().__init__()
            self.side = nn.Linear(64, 64)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + self.side(x).detach()

    model = Net()
    fit(model, adam(model, 1e-3), batches(pictures(), 150), F.mse_loss)


@program("convnet", "eval_mode_left_on", step=60)
def eval_left_on_after_validation() -> None:
    model = ConvNet(p=0.3)
    x_val, y_val = digits()

    def validate(step: int) -> None:
        if step == 59:
            model.eval()
            with torch.no_grad():
                (model(x_val[:300]).argmax(1) == y_val[:300]).float().mean()

    fit(model, adam(model, 2e-3), batches(digits(), 140), after=validate)


@program("lstm", "eval_mode_left_on", step=0)
def eval_from_the_start_lstm() -> None:
    class Net(RowLstm):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.drop(self.rnn(x.squeeze(1))[0][:, -1]))
            return out

    model = Net().eval()
    fit(model, adam(model, 3e-3), batches(digits(), 150))


@program("mlp", "refused_operation", step=40, verdict="failing")
def crash_of_shapes() -> None:
    x, y = flat_digits()
    model = Mlp()
    optimizer = adam(model, 1e-3)
    for step, (xb, yb) in enumerate(batches((x, y), 60)):
        wrong = xb[:, :60] if step == 40 else xb
        optimizer.zero_grad()
        F.cross_entropy(model(wrong), yb).backward()
        optimizer.step()


@program("mlp", "weights_overwritten", step=260)
def weights_scaled_in_mid_run() -> None:
    model = Mlp()

    def overwrite(step: int) -> None:
        if step == 259:
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(30.0)

    fit(model, sgd(model, 0.1), batches(flat_digits(), 400), after=overwrite)


@program("autoencoder", "weights_overwritten", step=300)
def weights_of_another_model_loaded_in_mid_run() -> None:
    model, other = AutoEncoder(), AutoEncoder()

    def load(step: int) -> None:
        if step == 299:
            model.load_state_dict({name: 8 * value for name, value in other.state_dict().items()})

    fit(model, sgd(model, 0.05), batches(pictures(), 420), F.mse_loss, after=load)
