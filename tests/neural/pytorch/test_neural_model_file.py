"""The source of a model: it is what is executed and what is written, it trains, and it can be read."""

import ast
import importlib.util
import linecache
import math
import re
import subprocess
import sys
import traceback
import warnings

import pytest
import torch
from tests.neural.pytorch.made_data import made_data
from tests.neural.sample_files import CNN, MODELS, network

from neural import CheckFailed, build, checked, compile_plan, load, parse

MODEL = """\
class Digits(nn.Module):
    \"""Map (28, 28, 1) to (10,).\"""

    def __init__(self) -> None:
        super().__init__()
        self.Conv2D_1 = nn.Conv2d(1, 8, kernel_size=3)
        self.MaxPooling2D_2 = nn.MaxPool2d(2)
        self.Flatten_3 = nn.Flatten()
        self.Dense_4 = nn.Linear(1352, 32)
        self.Dropout_5 = nn.Dropout(0.25)
        self.Output_6 = nn.Linear(32, 10)
        self.apply(initialize)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.permute(0, 3, 1, 2).contiguous()  # channels first
        x = torch.relu(self.Conv2D_1(x))
        x = self.MaxPooling2D_2(x)
        x = x.permute(0, 2, 3, 1)  # channels last
        x = self.Flatten_3(x)
        x = torch.relu(self.Dense_4(x))
        x = self.Dropout_5(x)
        return self.Output_6(x)  # the loss takes the activation


"""


LONG = """
network Long {
  input: (20,)
  layers:
    Embedding(30, 8, name="words")
    TransformerEncoder(num_heads=2, ff_dim=16, dropout=0.15, num_layers=3, activation="gelu", use_attention_mask=true)
    Bidirectional(LSTM(5, return_sequences=true, dropout=0.25, activation="relu", recurrent_dropout=0.25))
    MultiHeadAttention(num_heads=2, key_dim=4, value_dim=6, dropout=0.1, causal=true)
    TransformerDecoder(num_heads=2, ff_dim=12, num_layers=2, causal=true)
    Concatenate("words", "Bidirectional_3", "MultiHeadAttention_4", "TransformerDecoder_5")
    Conv1D(4, 3, strides=2, padding="same") PositionalEncoding(max_len=50)
    SqueezeExcitation(2) LayerNormalization(center=false) BatchNormalization(scale=false) GroupNormalization(2)
    GaussianNoise(0.1) Output(3)
  loss: categorical_crossentropy(label_smoothing=0.1)
  optimizer: Nadam(learning_rate=PiecewiseConstantDecay([5, 10], [0.1, 0.01, 0.001]), clipnorm=1.0)
  metrics: ["accuracy", "precision", "recall", "f1", "auc", "top_k_accuracy", "mae", "rmse", "r2_score", "perplexity"]
  train { epochs: 2 batch_size: 3 mixed_precision: true early_stopping: 4 save_path: "long.pt" shuffle: false }
}
"""
TEXTS = {**MODELS, "long": LONG}


def source(layers, shape="(4,)", rest='loss: "mse"'):
    return compile_plan(checked(parse(network(layers, shape, rest), "m.neural")))


def plans():
    for name, text in TEXTS.items():
        tree = parse(text, f"{name}.neural")
        yield name, checked(tree), text


def trained(module, plan):
    """Return the weights after a short training, and the numbers of its epochs."""
    torch.manual_seed(3)
    model = module.build_model()
    history = module.train(model, made_data(plan), epochs=2, batch_size=3, device="cpu")
    return model.state_dict(), history


def test_the_model_is_what_a_person_would_write():
    assert MODEL in compile_plan(checked(parse(CNN)))


@pytest.mark.parametrize("name", TEXTS)
def test_the_written_file_trains_bitwise_as_what_is_executed(name, tmp_path, capsys):
    plan = checked(parse(TEXTS[name], f"{name}.neural"))
    written = compile_plan(plan, TEXTS[name])
    (tmp_path / "model.py").write_text(written, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"written_{name}", tmp_path / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert capsys.readouterr().out == "", "nothing runs at import"
    (one, first), (other, second) = trained(load(written), plan), trained(module, plan)
    assert first == second
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)
    assert all(math.isfinite(number) for epoch in first for number in epoch.values())


def test_the_written_files_are_formatted_and_have_nothing_unused(tmp_path):
    for name, plan, text in plans():
        (tmp_path / f"{name}.py").write_text(compile_plan(plan, text), encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--isolated", "--line-length=120"]
    done = subprocess.run([*ruff, "format", "--diff", *options, tmp_path], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    select = ["--select=A,B,C4,D1,E,F,I,PIE,RET,SIM,UP", "--ignore=D102,D107", "--target-version=py310", "--no-cache"]
    done = subprocess.run([*ruff, "check", *options, *select, tmp_path], capture_output=True, text=True, check=False)
    assert done.stdout == "All checks passed!\n"


def test_every_definition_of_a_file_is_used(tmp_path):
    for _, plan, text in plans():
        written = compile_plan(plan, text)
        for node in ast.parse(written).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name not in {"predict", "main"}:
                assert len(re.findall(rf"\b{node.name}\b", written)) > 1, node.name


LEARNABLE = {
    "classes": (
        'Dense(16, "relu") BatchNormalization() Dropout(0.1) Output(3)',
        "(8,)",
        "sparse_categorical_crossentropy",
    ),
    "image": ('Conv2D(4, 3, "relu") MaxPooling2D() Flatten() Output(3)', "(8, 8, 2)", "categorical_crossentropy"),
    "words": ('Embedding(12, 8) LSTM(8) Output(1, "sigmoid")', "(6,)", "binary_crossentropy"),
    "attention": (
        "Embedding(12, 8) TransformerEncoder(num_heads=2, ff_dim=8, dropout=0.0) GlobalAveragePooling1D() Dense(1)",
        "(6,)",
        "mse",
    ),
    "recurrent": ("Bidirectional(GRU(6, return_sequences=true)) SimpleRNN(4) Dense(2)", "(5, 3)", "mae"),
}


@pytest.mark.parametrize("name", LEARNABLE)
def test_training_lowers_the_loss(name, capsys):
    layers, shape, loss = LEARNABLE[name]
    settings = "train { epochs: 12 batch_size: 8 validation_split: 0.0 seed: 5 }"
    rest = f"loss: {loss} optimizer: Adam(learning_rate=0.02) {settings}"
    plan = checked(parse(network(f"    {layers}", shape, rest)))
    module = load(compile_plan(plan))
    torch.manual_seed(1)
    history = module.train(module.build_model(), made_data(plan, samples=32), device="cpu")
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]
    assert len(capsys.readouterr().out.splitlines()) == 12


def test_a_traceback_shows_the_line_of_the_layer():
    module = load(compile_plan(checked(parse(CNN))), "Digits")
    try:
        module.build_model()(torch.zeros(1, 20, 20, 1))
    except RuntimeError:
        told = traceback.format_exc()
    assert "x = torch.relu(self.Dense_4(x))" in told
    assert '"<neural Digits ' in told


def test_loading_again_leaves_nothing_more_behind():
    written = compile_plan(checked(parse(CNN)))
    load(written)
    before = (len(linecache.cache), len(sys.modules))
    load(written)
    assert (len(linecache.cache), len(sys.modules)) == before


def test_build_reads_a_file_and_chooses_a_network(tmp_path):
    path = tmp_path / "two.neural"
    path.write_text(MODELS["several_networks"], encoding="utf-8")
    assert [name for name, _ in build(path).named_children()] == ["Dense_1"]
    assert build(path, "Large").Dense_1.out_features == 64


# ---------------------------------------------------------------- the last activation


def test_a_cross_entropy_is_trained_on_what_the_softmax_reads():
    written = source("    Output(3)", rest="loss: categorical_crossentropy")
    module = load(written)
    model, x = module.build_model(), torch.randn(5, 4)
    assert torch.equal(model(x), model.Output_1(x))
    answer = module.predict(model, x)
    assert torch.allclose(answer.sum(dim=1), torch.ones(5))
    targets = torch.eye(3)[[0, 1, 2, 0, 1]]
    of_shares = -(targets * answer.log()).sum(dim=1).mean()
    assert torch.allclose(module.loss_function(model(x), targets), of_shares)


@pytest.mark.parametrize(
    ("layers", "loss"),
    [
        ("Output(3)", "categorical_crossentropy(from_logits=true)"),
        ("Output(3)", "mse"),
        ('Dense(3, "sigmoid")', "categorical_crossentropy"),
        ('Output(3, "softmax")', "binary_crossentropy"),
    ],
)
def test_other_losses_leave_the_activation_where_it_is(layers, loss):
    written = source(f"    {layers}", rest=f"loss: {loss}")
    assert re.search(r"return torch\.(softmax|sigmoid)\(self\.", written)
    assert "the loss takes" not in written


def test_an_activation_of_its_own_is_taken_over_too():
    written = source('    Dense(1) Activation("sigmoid")', rest="loss: binary_crossentropy")
    assert "binary_cross_entropy_with_logits" in written
    assert "Activation_2" not in written


# ---------------------------------------------------------------- weights and training


def test_first_weights_are_those_of_keras():
    torch.manual_seed(0)
    layers = 'Embedding(50, 40) LSTM(30, return_sequences=true) Dense(200, kernel_initializer="he_uniform") Dense(20)'
    model = load(source(f"    {layers}", "(6,)")).build_model()
    assert 0.049 < model.Embedding_1.weight.abs().max() <= 0.05
    assert model.LSTM_2.bias.tolist() == [0.0] * 30 + [1.0] * 30 + [0.0] * 60
    square = model.LSTM_2.weight_hh.T @ model.LSTM_2.weight_hh
    assert torch.allclose(square, torch.eye(30), atol=1e-5)
    limits = {"Dense_3": (6 / 30) ** 0.5, "Dense_4": (6 / 220) ** 0.5}
    for name, limit in limits.items():
        layer = getattr(model, name)
        assert 0.98 * limit < layer.weight.abs().max() <= limit
        assert not layer.bias.any()


@pytest.mark.parametrize(
    ("words", "statement"),
    [
        ("RandomNormal(stddev=0.02)", "nn.init.normal_(self.Dense_1.weight, 0.0, 0.02)"),
        ("RandomUniform(-1, 1, seed=3)", "nn.init.uniform_(self.Dense_1.weight, -1.0, 1.0)"),
        ("Constant(0.5)", "nn.init.constant_(self.Dense_1.weight, 0.5)"),
        ("TruncatedNormal()", "nn.init.trunc_normal_(self.Dense_1.weight, std=0.05, a=-0.1, b=0.1)"),
        ("TruncatedNormal(1, 2)", "nn.init.trunc_normal_(self.Dense_1.weight, 1.0, 2.0, a=-3.0, b=5.0)"),
        ("HeNormal()", "nn.init.trunc_normal_(self.Dense_1.weight, std="),
    ],
)
def test_initializers_with_arguments(words, statement):
    written = source(f"    Dense(1, kernel_initializer={words})")
    assert statement in written
    load(written).build_model()


@pytest.mark.parametrize("words", ["Magic(1)", "Constant(high=1)", 'Constant("a")', "Constant(1, 2)"])
def test_initializers_that_are_not_built(words):
    with pytest.raises(CheckFailed, match=r"kernel_initializer .*, which is not built: one of"):
        source(f"    Dense(1, kernel_initializer={words})")


def test_blocks_have_their_own_first_weights_too():
    layers = '    ResidualConnection { Dense(4, kernel_initializer="zeros") Dense(4, kernel_initializer="ones") }'
    model = load(source(layers)).build_model()
    assert not model.ResidualConnection_1.Dense_1.weight.any()
    assert (model.ResidualConnection_1.Dense_2.weight == 1).all()


def test_regularizers_add_to_the_loss():
    written = source('    Dense(2, kernel_regularizer=L2(0.5)) Dense(1, bias_regularizer="l1")')
    module = load(written)
    model = module.build_model()
    torch.nn.init.ones_(model.Dense_2.bias)
    expected = 0.5 * model.Dense_1.weight.square().sum() + 0.01
    assert torch.allclose(module.regularization(model), expected)
    assert "loss_function(outputs, target.to(device)) + regularization(model)" in written


def test_without_validation_the_metrics_are_those_of_the_training_data():
    rest = "loss: mse train {{ epochs: 2 validation_split: 0.0 }} metrics: {}"
    plan = checked(parse(network("    Dense(1)", rest=rest.format("[mae]"))))
    module = load(compile_plan(plan))
    history = module.train(module.build_model(), made_data(plan), device="cpu")
    assert [sorted(each) for each in history] == [["loss", "mae"], ["loss", "mae"]]
    assert "def evaluate" not in source("    Dense(1)", rest=rest.format("[]"))


def test_inputs_may_have_any_name():
    text = """network Two { input: { x: (4,) class: (4,) y: (4,) dense_1: (4,) }
    layers: a: { Dense(4) } Add("a", "x", "class", "y", "dense_1") Dense(1) loss: mse }"""
    written = compile_plan(checked(parse(text)))
    parameters = [f"{name}: torch.Tensor" for name in ("x_input", "class_", "y_input", "dense_1_input")]
    assert f"    def forward(\n        self, {', '.join(parameters)}\n    ) -> torch.Tensor:\n" in written
    model = load(written).build_model()
    ones = [torch.full((2, 4), float(place)) for place in range(4)]
    found = model(*ones)
    expected = model.Dense_3(model.Dense_1(ones[0]) + ones[0] + ones[1] + ones[2] + ones[3])
    assert torch.allclose(found, expected)


def test_weights_that_are_not_trained_stay():
    plan = checked(parse(network("    Dense(3, trainable=false) Dense(1)")))
    module = load(compile_plan(plan))
    model = module.build_model()
    before = {key: each.clone() for key, each in model.state_dict().items()}
    module.train(model, made_data(plan), epochs=1, device="cpu")
    changed = {key for key, each in model.state_dict().items() if not torch.equal(each, before[key])}
    assert changed == {"Dense_2.weight", "Dense_2.bias"}


def test_training_stops_early_and_clips():
    settings = "train { epochs: 9 early_stopping: 2 gradient_clip: 1.0 }"
    rest = f"loss: mse optimizer: SGD(learning_rate=1e-12, clipvalue=0.5) {settings}"
    plan = checked(parse(network("    Dense(1)", rest=rest)))
    written = compile_plan(plan)
    assert "clip_grad_norm_(model.parameters(), 1.0)" in written
    assert "clip_grad_value_(model.parameters(), 0.5)" in written
    module = load(written)
    assert len(module.train(module.build_model(), made_data(plan), device="cpu")) < 9


def test_empty_places_are_found_only_where_something_reads_them():
    reads = source("    Embedding(9, 4, mask_zero=true) LSTM(3) Dense(1)", "(5,)")
    assert "mask = x != 0  # False at empty places" in reads
    assert "self.LSTM_2(x, mask)" in reads
    assert "mask" not in source("    Embedding(9, 4, mask_zero=true) Flatten() Dense(1)", "(5,)")
    assert "mask" not in source("    Embedding(9, 4) LSTM(3) Dense(1)", "(5,)")
    asked = source("    Embedding(9, 4) TransformerEncoder(num_heads=2, use_attention_mask=true)", "(5,)")
    assert "src_key_padding_mask=empty_places(mask)" in asked


@pytest.mark.parametrize(
    "layers",
    [
        "TransformerEncoder(num_heads=2, ff_dim=8, use_attention_mask=true)",
        "MultiHeadAttention(num_heads=2, key_dim=3)",
        "Attention()",
        "LSTM(4, return_sequences=true)",
    ],
)
def test_a_sample_of_empty_places_alone_gives_numbers(layers):
    written = source(f"    Embedding(9, 4, mask_zero=true) {layers} GlobalAveragePooling1D() Dense(1)", "(5,)")
    model = load(written).build_model()
    one = model(torch.tensor([[3, 4, 0, 0, 0], [0, 0, 0, 0, 0]]))
    one.sum().backward()
    assert one.isfinite().all()
    assert all(each.grad.isfinite().all() for each in model.parameters())


def test_empty_places_do_not_change_the_answer():
    layers = (
        "TransformerEncoder(num_heads=2, ff_dim=8, dropout=0.0) GRU(4, return_sequences=true) GlobalAveragePooling1D()"
    )
    torch.manual_seed(0)
    model = load(source(f"    Embedding(9, 4, mask_zero=true) {layers} Dense(1)", "(None, None)")).build_model()
    short, padded = model(torch.tensor([[3, 4, 5]])), model(torch.tensor([[3, 4, 5, 0, 0]]))
    assert torch.allclose(short, padded, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ('execution { device: "cpu" }', '"cpu"'),
        ('execution { device: "cuda:1" }', '"cuda:1" if torch.cuda.device_count() > 1 else "cpu"'),
        ('execution { device: "cuda:08" }', '"cuda:8" if torch.cuda.device_count() > 8 else "cpu"'),
        ('train { device: "GPU:1" }', '"cuda:1" if torch.cuda.device_count() > 1 else "cpu"'),
        ('execution { device: "mps" }', '"mps" if torch.backends.mps.is_available() else "cpu"'),
        ('execution { device: "tpu:3" }', '"cuda" if torch.cuda.device_count() > 0 else "cpu"'),
        ("", '"cuda" if torch.cuda.device_count() > 0 else "cpu"'),
    ],
)
def test_the_device(text, device):
    assert f"\nDEVICE = {device}\n" in source("    Dense(1)", rest=f"loss: mse {text}")


def test_the_device_of_a_layer_is_read_as_strictly():
    assert 'DEVICE = "cuda:1" if' in source('    Dense(1) @ "gpu:01"', rest="loss: mse")
    with pytest.raises(CheckFailed, match="unknown device 'cuda:¹'"):
        source('    Dense(1) @ "cuda:¹"', rest="loss: mse")


TAKEN = ["SEED", "EPOCHS", "BATCH_SIZE", "DEVICE", "Callable", "F", "Bidirectional", "BidirectionalModel", "Exception"]


@pytest.mark.parametrize("name", [*TAKEN, "ResidualConnection1", "__debug__", "x"])
def test_a_network_may_have_any_name(name, tmp_path):
    text = f"""network {name} {{ input: (6, 4) layers: ResidualConnection {{ Dense(4) }} Bidirectional(LSTM(3)) Dense(1)
      loss: mse optimizer: SGD(ExponentialDecay(0.1, 9, 0.5)) metrics: [f1] train {{ epochs: 1 seed: 3 }} }}"""
    module = load(compile_plan(checked(parse(text))))
    data = {"x": torch.zeros(8, 6, 4), "y": torch.zeros(8, 1)}
    assert len(module.train(module.build_model(), data, device="cpu")) == 1
    assert (module.SEED, module.EPOCHS, module.BATCH_SIZE, module.DEVICE[:1]) == (3, 1, 32, "c")


def test_the_file_runs_alone(tmp_path):
    np = pytest.importorskip("numpy")
    plan = checked(parse(CNN))
    (tmp_path / "model.py").write_text(compile_plan(plan), encoding="utf-8")
    np.savez(tmp_path / "data.npz", **{key: each.numpy() for key, each in made_data(plan).items()})
    command = [sys.executable, "-I", "model.py", "--data", "data.npz", "--epochs", "2", "--device", "cpu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"(epoch \d/2: loss [\d.]+, val_loss [\d.]+, val_accuracy [\d.]+\n){2}", done.stdout)


# ---------------------------------------------------------------- what is refused

REFUSED = {
    "    L2(0.1) Dense(1)": "m.neural:4:5: L2 adds its input to the loss, which is not built",
    '    Dense(1, kernel_constraint="max_norm")': "m.neural:4:5: Dense has kernel_constraint='max_norm', which",
    '    Dense(1, kernel_initializer="magic")': "m.neural:4:5: Dense has the kernel_initializer 'magic', which",
    "    Reshape((2, 2)) LSTM(3, stateful=true)": "m.neural:4:21: LSTM has stateful=true",
    "    Reshape((2, 2)) Bidirectional(GRU(3), merge_mode=None)": "m.neural:4:21: Bidirectional with merge_mode=None",
    "    BatchNormalization(trainable=false) Dense(1)": "m.neural:4:5: BatchNormalization has trainable=false",
    "    Reshape((2, 2)) TransformerEncoder(num_heads=2, use_attention_mask=true)": (
        "m.neural:4:21: TransformerEncoder has use_attention_mask=true"
    ),
}


@pytest.mark.parametrize("layers", REFUSED)
def test_what_cannot_be_built_is_said_with_its_place(layers):
    text = network(layers)
    with pytest.raises(CheckFailed) as caught:
        compile_plan(checked(parse(text, "m.neural")), text)
    screen = str(caught.value)
    assert screen.startswith(REFUSED[layers])
    assert layers.strip() in screen


def test_all_that_cannot_be_built_is_said_at_once():
    with pytest.raises(CheckFailed) as caught:
        source('    L1(0.1) Dense(1, kernel_initializer="magic")')
    assert len(caught.value.problems) == 2


def test_an_optimizer_that_torch_does_not_have_is_refused():
    with pytest.raises(CheckFailed, match="weight_decay of RMSprop is not built"):
        source("    Dense(1)", rest="loss: mse optimizer: RMSprop(weight_decay=0.1)")


def test_the_files_compile_without_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _, plan, text in plans():
            compile(compile_plan(plan, text), "model.py", "exec")
