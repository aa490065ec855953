"""Write how a network is trained: loss, optimizer and schedule enter as a `Plan`, functions leave as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neural.pytorch.layer_code import arguments, unless

if TYPE_CHECKING:
    from neural.plan import Plan

PLACES = ("Activation", "Conv1D", "Conv2D", "Conv3D", "Dense", "Output")
"""Layers whose activation a loss can take over."""
USUAL_EPSILON = 1e-7
"""Keras's own: where torch adds so little does not matter, unless gradients are as small."""


class NoSuchTraining(ValueError):
    """Raised if torch cannot train as the file says; the message is a whole sentence without its full stop."""


def taken_over(plan: Plan) -> str:
    """Return the last activation if the loss takes it over, "" if it does not.

    A cross entropy is trained on what a softmax or a sigmoid reads, which is the same and keeps its gradient. With
    from_logits=true the file asks for both, and gets both.
    """
    last = plan.layers[-1]
    activation = last.parameters.get("activation")
    if last.type not in PLACES or plan.loss.parameters.get("from_logits"):
        return ""
    match plan.loss.type, activation:
        case (("categorical_crossentropy" | "sparse_categorical_crossentropy"), "softmax"):
            return "softmax"
        case "binary_crossentropy", "sigmoid":
            return "sigmoid"
    return ""


# ---------------------------------------------------------------- loss


@dataclass(frozen=True)
class LossCode:
    """Hold the statements of the loss function."""

    statements: tuple[str, ...]
    helpers: tuple[str, ...] = ()


def loss_code(plan: Plan) -> LossCode:
    """Return the statements that give the loss of `outputs` and `targets`."""
    values: Any = plan.loss.parameters
    logits = bool(taken_over(plan)) or values.get("from_logits", False)
    match plan.loss.type:
        case "categorical_crossentropy" | "sparse_categorical_crossentropy":
            return _categorical(plan, logits, values.get("label_smoothing", 0.0))
        case "binary_crossentropy":
            return _binary(logits, values["label_smoothing"])
        case "mean_squared_error":
            return LossCode(("return F.mse_loss(outputs, targets)",))
        case "mean_absolute_error":
            return LossCode(("return F.l1_loss(outputs, targets)",))
        case "huber":
            return LossCode((f"return F.huber_loss(outputs, targets, delta={values['delta']})",))
        case "log_cosh":
            return LossCode(("return log_cosh(outputs, targets)",), ("log_cosh",))
        case "hinge":
            return LossCode(("return F.relu(1 - signed(targets) * outputs).mean()",), ("signed",))
        case "squared_hinge":
            return LossCode(("return F.relu(1 - signed(targets) * outputs).square().mean()",), ("signed",))
        case "kl_divergence":
            return LossCode(("return divergence(outputs, targets)",), ("divergence",))
        case "poisson":
            return LossCode(("return (outputs - targets * torch.log(outputs + 1e-7)).mean()",))
        case "cosine_similarity":
            return LossCode(("return -F.cosine_similarity(outputs, targets, dim=-1).mean()",))
    raise NoSuchTraining(f"the loss {plan.loss.type} is not built")


def _categorical(plan: Plan, logits: bool, smoothing: float) -> LossCode:
    sparse = plan.loss.type.startswith("sparse")
    deep = len(plan.layers[-1].shape) > 1
    if logits:
        outputs = "outputs.flatten(0, -2)" if deep else "outputs"
        targets = ("targets.flatten()" if sparse else "targets.flatten(0, -2)") if deep else "targets"
        return LossCode(
            (f"return F.cross_entropy({arguments(outputs, targets, label_smoothing=unless(smoothing, 0.0))})",)
        )
    start = ["targets = F.one_hot(targets, outputs.shape[-1])"] if sparse else []
    if smoothing:
        start.append(f"targets = targets * {1 - smoothing!r} + {smoothing!r} / outputs.shape[-1]")
    return LossCode((*start, "return crossentropy_of_shares(outputs, targets)"), ("crossentropy_of_shares",))


def _binary(logits: bool, smoothing: float) -> LossCode:
    start = (f"targets = targets * {1 - smoothing!r} + {smoothing / 2!r}",) if smoothing else ()
    if logits:
        return LossCode((*start, "return F.binary_cross_entropy_with_logits(outputs, targets)"))
    return LossCode((*start, "return F.binary_cross_entropy(outputs.clamp(1e-7, 1 - 1e-7), targets)"))


def targets_code(plan: Plan) -> tuple[str, ...]:
    """Return the statements that bring the array `y` to what the loss takes."""
    shape = plan.layers[-1].shape
    if plan.loss.type == "sparse_categorical_crossentropy":
        return ('y = torch.as_tensor(data["y"]).long()', f"y = y.squeeze(-1) if y.ndim == {len(shape) + 1} else y")
    if plan.loss.type == "categorical_crossentropy" and shape[-1] is not None:
        return (
            'y = torch.as_tensor(data["y"])',
            f"if y.ndim == {len(shape)}:  # numbers of classes",
            f"    y = F.one_hot(y.long(), {shape[-1]})",
            "y = y.float()",
        )
    if shape == (1,):
        return ('y = torch.as_tensor(data["y"]).float().reshape(-1, 1)',)
    return ('y = torch.as_tensor(data["y"]).float()',)


# ---------------------------------------------------------------- optimizer


@dataclass(frozen=True)
class OptimizerCode:
    """Hold the expression that makes the optimizer."""

    expression: str
    helpers: tuple[str, ...] = ()


def optimizer_code(plan: Plan) -> OptimizerCode:
    """Return the expression that makes the optimizer of `model`, with Keras's parameters under torch's names."""
    values: Any = plan.optimizer.parameters
    name, decay = plan.optimizer.type, values["weight_decay"]
    named: dict[str, Any] = {"lr": values["learning_rate"]}
    if name in {"Adam", "AdamW", "Adamax", "Nadam"}:
        betas = (values["beta_1"], values["beta_2"])
        named |= {"betas": None if betas == (0.9, 0.999) else betas, "eps": values["epsilon"]}
    match name:
        case "Adam" | "AdamW":
            named["amsgrad"] = unless(values["amsgrad"], False)
            name = "AdamW" if decay else "Adam"
        case "SGD":
            momentum = values["momentum"]
            named |= {"momentum": momentum or None, "nesterov": True if values["nesterov"] and momentum else None}
            if decay and momentum:
                raise NoSuchTraining("weight_decay of SGD with a momentum is not built: AdamW has a weight_decay")
        case "RMSprop":
            named |= {"alpha": values["rho"], "eps": values["epsilon"], "momentum": values["momentum"] or None}
            named["centered"] = unless(values["centered"], False)
        case "Adagrad":  # Keras adds epsilon to the sum of squares, which is to begin with it
            start = round(values["initial_accumulator_value"] + values["epsilon"], 15)
            named |= {"eps": 0, "initial_accumulator_value": start}
        case "Adadelta":
            named |= {"rho": values["rho"], "eps": values["epsilon"]}
        case "Nadam":
            name, named["momentum_decay"] = "NAdam", 1.0  # Keras's schedule of the momentum
    if decay:
        if name not in {"AdamW", "SGD"}:
            raise NoSuchTraining(f"weight_decay of {name} is not built: AdamW has a weight_decay")
        named["weight_decay"] = decay
    words = arguments("model.parameters()", **named)
    if _means_another(plan):
        return OptimizerCode(f"{name}({words})", (name,))
    return OptimizerCode(f"torch.optim.{name}({words})")


def _means_another(plan: Plan) -> bool:
    """Return True if torch's own optimizer would train otherwise than Keras's, by more than a usual epsilon does.

    RMSprop has its epsilon under the root, where it always counts. Keras's momentum has the learning rate in it, which
    is the same until a schedule changes that.
    """
    values: Any = plan.optimizer.parameters
    match plan.optimizer.type:
        case "RMSprop":
            return True
        case "Adam" | "AdamW" | "Adamax":
            return bool(values["epsilon"] > USUAL_EPSILON)
        case "SGD":
            return bool(values["momentum"]) and plan.schedule is not None
    return False


def clip_code(plan: Plan) -> list[str]:
    """Return the statements that limit the gradients of `model`."""
    values: Any = plan.optimizer.parameters
    found = []
    if values["clipnorm"]:
        found += [
            "for parameter in model.parameters():",
            f"    nn.utils.clip_grad_norm_(parameter, {values['clipnorm']})",
        ]
    if values["clipvalue"]:
        found.append(f"nn.utils.clip_grad_value_(model.parameters(), {values['clipvalue']})")
    norm = plan.training["gradient_clip"] or values["global_clipnorm"]
    if norm:
        found.append(f"nn.utils.clip_grad_norm_(model.parameters(), {norm})")
    return found


# ---------------------------------------------------------------- schedule


def schedule_code(plan: Plan) -> tuple[tuple[str, ...], bool]:
    """Return the statements of `make_schedule(optimizer)`, and True if it steps after each epoch, not each batch."""
    if plan.schedule is None:
        return (), False
    values: Any = plan.schedule.parameters
    if plan.schedule.type == "StepDecay":
        words = arguments("optimizer", step_size=values["decay_steps"], gamma=values["decay_rate"])
        return (f"return torch.optim.lr_scheduler.StepLR({words})",), True
    factor = _factor(plan.schedule.type, values)
    if len(factor) == 1:
        return (f"return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: {factor[0]})",), False
    inner = tuple(f"    {line}" for line in factor)
    head = ("", "def factor(step: int) -> float:", *inner, "")
    return (*head, "return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)"), False


def _factor(kind: str, values: Any) -> tuple[str, ...]:
    """Return the expression of the rate after `step` steps as a share of the first one, or statements."""
    steps = values.get("decay_steps")
    share = f"step // {steps}" if values.get("staircase") else f"step / {steps}"
    match kind:
        case "ExponentialDecay":
            return (f"{values['decay_rate']} ** ({share})",)
        case "InverseTimeDecay":
            return (f"1 / (1 + {values['decay_rate']} * ({share}))",)
        case "CosineDecay":
            alpha = values["alpha"]
            curve = f"(1 + math.cos(math.pi * min(step / {steps}, 1))) / 2"
            return (f"{1 - alpha!r} * {curve} + {alpha!r}" if alpha else curve,)
        case "PolynomialDecay":
            end = values["end_learning_rate"] / values["initial_learning_rate"]
            last = f"{steps} * max(math.ceil(step / {steps}), 1)" if values["cycle"] else str(steps)
            share = f"step / ({last})" if values["cycle"] else f"min(step / {last}, 1)"
            power = "" if values["power"] == 1 else f" ** {values['power']}"
            return (f"{1 - end!r} * (1 - {share}){power} + {end!r}",)
        case _:
            bounds, rates = values["boundaries"], values["values"]
            lines = []
            for bound, rate in zip(bounds, rates, strict=False):
                lines += [f"if step <= {bound}:", f"    return {rate / rates[0]!r}"]
            return (*lines, f"return {rates[-1] / rates[0]!r}")
