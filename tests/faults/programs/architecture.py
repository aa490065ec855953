"""The model is built so that it cannot train."""

from __future__ import annotations

from tests.faults.corpus import program
from tests.faults.kit import ConvNet, Mlp, adam, batches, digits, fit, flat_digits, sgd
from torch import Tensor, nn


def init(model: nn.Module, std: float | None = None, gain: float = 1.0) -> nn.Module:
    for layer in model.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            fan_in = layer.weight[0].numel()
            nn.init.normal_(layer.weight, 0, std if std is not None else gain / fan_in**0.5)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return model


@program("mlp", "init_scale_wrong", layer="fc1", step=0, verdict="failing")
def normal_1_init_mlp() -> None:
    model = init(Mlp(depth=6), 1.0)
    fit(model, sgd(model, 0.01), batches(flat_digits(), 150))


@program("mlp", "init_scale_wrong", layer="fc1", step=0, verdict="failing")
def tiny_init_mlp() -> None:
    model = init(Mlp(depth=6), 1e-3)
    fit(model, sgd(model, 0.1), batches(flat_digits(), 150))


@program("convnet", "init_scale_wrong", step=0, verdict="failing")
def tiny_init_deep_convnet() -> None:
    layers: list[nn.Module] = []
    for i in range(6):
        layers += [nn.Conv2d(1 if i == 0 else 12, 12, 3, padding=1), nn.ReLU()]
    model = init(nn.Sequential(*layers, nn.Flatten(), nn.Linear(768, 10)), 1e-3)
    fit(model, sgd(model, 0.05, momentum=0.9), batches(digits(), 80))


@program("mlp", "vanishing_depth", layer="fc1", step=0, verdict="failing")
def deep_sigmoid_stack() -> None:
    model = Mlp(depth=12, act=nn.Sigmoid)
    fit(model, sgd(model, 0.1), batches(flat_digits(), 150))


@program("convnet", "vanishing_depth", step=0, verdict="failing")
def deep_sigmoid_convnet() -> None:
    layers: list[nn.Module] = []
    for i in range(8):
        layers += [nn.Conv2d(1 if i == 0 else 8, 8, 3, padding=1), nn.Sigmoid()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))
    fit(model, adam(model, 1e-4), batches(digits(), 80))


@program("lstm", "exploding_depth", layer="rnn", step=0, verdict="failing")
def relu_recurrence_over_pixels() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.RNN(1, 48, nonlinearity="relu", batch_first=True)
            self.head = nn.Linear(48, 10)
            nn.init.normal_(self.rnn.weight_hh_l0, 0, 1.9 / 48**0.5)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.rnn(x.flatten(1)[:, :, None])[0][:, -1])
            return out

    model = Net()
    fit(model, sgd(model, 0.01), batches(digits(), 60))


@program("mlp", ("exploding_depth", "missing_activation"), layer=("fc1", "head"), step=0, verdict="failing")
def deep_linear_gain_2() -> None:
    model = init(Mlp(depth=16, act=nn.Identity), gain=2.0)
    fit(model, sgd(model, 0.01), batches(flat_digits(), 100))


@program("mlp", "dead_relu", layer="act2", verdict="failing")
def negative_bias_mlp() -> None:
    model = Mlp(depth=4)
    nn.init.constant_(model.get_parameter("fc2.bias"), -30.0)
    fit(model, sgd(model, 0.1), batches(flat_digits(), 150))


@program("convnet", "dead_relu", layer="relu1", verdict="failing")
def negative_bias_convnet() -> None:
    model = ConvNet(norm=False)
    nn.init.constant_(model.conv1.bias, -20.0)  # type: ignore[arg-type]
    fit(model, adam(model, 1e-3), batches(digits(), 100))


@program("mlp", "saturating_activation", layer="act2", step=0, verdict="failing")
def large_bias_tanh() -> None:
    model = Mlp(depth=4, act=nn.Tanh)
    nn.init.constant_(model.get_parameter("fc2.bias"), 30.0)
    fit(model, sgd(model, 0.1), batches(flat_digits(), 150))


@program("mlp", "saturating_activation", layer="act1", step=0, verdict="failing")
def steep_sigmoid() -> None:
    class Steep(nn.Sigmoid):
        pass

    model = Mlp(depth=3, act=nn.Sigmoid)
    nn.init.constant_(model.get_parameter("fc1.bias"), -40.0)
    fit(model, adam(model, 1e-4), batches(flat_digits(), 120))
