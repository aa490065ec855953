"""No nonlinearity between the layers: a stack of linear layers is one linear layer.

What it is
    Linear layers and convolutions that follow each other without an activation in between multiply out to a single
    linear map. However many there are, the network can only draw straight lines. It happens when the activations
    were forgotten in ``forward``, or were made in ``__init__`` and never called.

Symptoms
    The loss stops where a linear model stops: fair on easy data, hopeless where features must be combined. More
    layers or wider ones do not help.

Evidence
    Every operation between the layers is read from the graph of the loss; if all of them are linear, the network is
    linear, whatever the statistics say. A low-rank factorisation (a middle narrower than both ends: LoRA, the code
    of a linear autoencoder) has no activation on purpose and is not named. One missing activation among several
    present ones is not named either: blocks with linear ends are common.

What to do
    Put an activation (ReLU, GELU) behind each hidden layer, or keep a single linear layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.explain.cause import STALL, Cause
from neuraldbg.explain.evidence.depth_profiles import MATRIX_TYPES
from neuraldbg.explain.evidence.layer_facts import operations_into
from neuraldbg.explain.evidence.wording import listing, percent, verb
from neuraldbg.explain.finding import Tier, Weighing
from neuraldbg.nouns import Remedy

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case
    from neuraldbg.explain.finding import Finding
    from neuraldbg.nouns import Layer

LINEAR_OPS = frozenset({
    "add", "addmm", "mm", "linear", "mv", "sub", "rsub", "neg", "sum", "mean", "embedding", "nativebatchnorm",
    "cudnnbatchnorm", "miopenbatchnorm", "avgpool1d", "avgpool2d", "avgpool3d", "adaptiveavgpool1d", "constantpadnd",
    "adaptiveavgpool2d", "mkldnnadaptiveavgpool2d", "nativedropout", "convolution", "mkldnnconvolution", "thnnconv2d",
    "slowconv2d", "cudnnconvolution", "embeddingbag", "viewasreal", "unsafesplit", "repeat", "roll", "flip", "none",
})  # fmt: skip
"""Operations that map a sum of inputs to the sum of outputs, up to an offset."""
TRUNK = 2
"""Least number of matrices in a row that several heads share: one alone is a common embedding."""
DROPS = ("Dropout", "AlphaDropout", "Dropout1d", "Dropout2d", "Dropout3d")
"""Layers that multiply by a mask, which is not a product of two computed tensors."""


def judge(case: Case) -> Finding | None:
    """Weigh the first model whose graph has only linear operations between its matrices."""
    into = operations_into(case)
    for model in dict.fromkeys(layer.model for layer in case.layout.layers):
        stack = _stack(case, model, into)
        if stack is not None:
            return _weigh(case, stack)
    return None


def _stack(case: Case, model: str, into: dict[str, tuple[str, ...]]) -> list[Layer] | None:
    """Return the matrices of a model in data-flow order if all operations between them are linear; else None."""
    layers = [layer for layer in case.ordered if layer.model == model and layer.path in into]
    matrices = [layer for layer in layers if layer.type in MATRIX_TYPES and layer.leaf]
    if len(matrices) < 2 or len(case.terms) == 0:
        return None
    # Matrices whose output reaches no other one are heads; one head after the trunk is enough to judge.
    ahead = _ahead(case, matrices)
    trunk, ends = [m for m in matrices if m.path in ahead], [m for m in matrices if m.path not in ahead]
    if len(ends) > 1 and len(trunk) < TRUNK:
        return None  # side by side, not one after the other
    for layer in layers:
        if layer.path not in ahead and layer not in ends:
            continue  # after the last matrix: an output activation
        extra = {"mul"} if layer.type in DROPS else set()
        if not set(into[layer.path]) <= LINEAR_OPS | extra:
            return None
    others = [layer for layer in case.layout.layers if layer.model == model and layer.path in case.layout.called]
    if any(layer.path not in into and layer.params and layer.leaf for layer in others):
        return None  # a layer that the graph did not show may be nonlinear
    stack = [*trunk, *ends[-1:]]
    return None if len(stack) < 2 or _low_rank(stack) else stack


def _ahead(case: Case, matrices: list[Layer]) -> frozenset[str]:
    """Return the layers whose output flows into a matrix."""
    found: set[str] = set()
    front = [layer.path for layer in matrices]
    while front:
        target = front.pop()
        for edge in case.layout.edges:
            if edge.target == target and edge.source not in found:
                found.add(edge.source)
                front.append(edge.source)
    return frozenset(found)


def _low_rank(matrices: list[Layer]) -> bool:
    """Return True if every width in the middle is below both ends: then the matrices limit the rank on purpose."""
    sizes = [_sizes(layer) for layer in matrices]
    if any(size is None for size in sizes):
        return False
    known = [size for size in sizes if size is not None]
    ends = min(known[0][0], known[-1][1])
    return all(out < ends for _, out in known[:-1])


def _sizes(layer: Layer) -> tuple[float, float] | None:
    pairs = (("in_features", "out_features"), ("in_channels", "out_channels"))
    for names in pairs:
        into, out = (layer.settings.get(name) for name in names)
        if isinstance(into, (int, float)) and isinstance(out, (int, float)):
            kernel = str(layer.settings.get("kernel_size", "1"))
            size = 1.0
            for part in kernel.split("x"):
                size *= float(part)
            return float(into) * size, float(out)
    return None


def _weigh(case: Case, stack: list[Layer]) -> Finding:
    names = [layer.path for layer in stack]
    weigh = Weighing()
    weigh.speaks(
        f"the graph of the loss holds only linear operations between {names[0]} and {names[-1]}",
        6.0, len(names), 1,
    )  # fmt: skip
    # An activation that was made and never called shows that one was meant.
    idle = [
        layer.path for layer in case.layout.layers
        if layer.leaf and not layer.params and layer.path not in case.layout.called and _activates(layer)
    ]  # fmt: skip
    if idle:
        weigh.speaks(f"{listing(idle)} {verb(idle, 'was', 'were')} made and never called", 1.0, len(idle), 0)
    if case.trouble.any:
        weigh.speaks(case.trouble.phrase, 0.7)
    elif case.learned:
        weigh.against(f"the model learns: the loss fell by {percent(case.loss.relative)}", 1.0, case.loss.relative)
    convolutional = "Conv" in stack[0].type
    return weigh.conclude(
        f"layers without an activation between them: {listing(names)} together are one linear map",
        Remedy(
            f"Put an activation behind each hidden layer ({listing(names[:-1])}).",
            "# in forward():\n"
            + "\n".join(_line(name) for name in names[:-1][:4])
            + ("\n# in a Sequential: torch.nn.Conv2d(...), torch.nn.ReLU()" if convolutional else
               "\n# in a Sequential: torch.nn.Linear(...), torch.nn.ReLU()"),
        ),
        layer=names[0],
        step=0,
        failure=case.trouble.name or "limited model",
    )  # fmt: skip


def _line(name: str) -> str:
    plain = all(part.isidentifier() for part in name.split("."))
    return f"x = torch.relu(self.{name}(x))" if plain else f"# ReLU behind layer {name!r}"


def _activates(layer: Layer) -> bool:
    return layer.type in ("ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "LeakyReLU", "ELU", "ReLU6", "Mish", "PReLU")


CAUSE = Cause(
    module=__name__,
    title="No activation between linear layers",
    tier=Tier.CERTAIN,
    explains=STALL,
    judge=judge,
    page=__doc__ or "",
)
