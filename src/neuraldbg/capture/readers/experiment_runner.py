"""The reader that runs experiments: copies of one training call and of the loss's targets in, EXPERIMENT facts out.

Experiments run when a step closes, at two moments of a run: an early step, when nothing has collapsed yet, and a later
one that confirms it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from neuraldbg import clocks
from neuraldbg.capture.autograd.graph_walk import Marks, op_name, parents
from neuraldbg.capture.autograd.saved_tensors import saved
from neuraldbg.capture.autograd.shape_moves import moves, signed
from neuraldbg.capture.experiments import experiments
from neuraldbg.capture.experiments.experiment import SECONDS, Bench, Rate, Target, output_name, rebuilt, undisturbed
from neuraldbg.capture.experiments.model_copy import twin
from neuraldbg.capture.experiments.threads_beside import company
from neuraldbg.capture.guest import tensor_memory
from neuraldbg.capture.guest.guard import collecting_later, sessions_paused
from neuraldbg.capture.guest.module_tree import groups, parameters, tensors
from neuraldbg.capture.guest.plain_numbers import number
from neuraldbg.capture.guest.program_objects import item
from neuraldbg.capture.guest.purity import Unfit
from neuraldbg.capture.guest.tensor_kinds import node_of
from neuraldbg.capture.layers.layer_names import wraps
from neuraldbg.capture.readers.reader import Reader
from neuraldbg.capture.statistics import operation
from neuraldbg.capture.statistics.nested_tensors import leaves, seen
from neuraldbg.nouns import FactKey

if TYPE_CHECKING:
    from torch import Tensor

    from neuraldbg.capture.loop.moments import Backward, Call
    from neuraldbg.capture.loop.reader_context import Scene

MOMENTS = (2, 32)
"""Steps whose experiments run: after the first updates, and once more when the run has settled."""
LEARNT = 0.7
"""Share of the first loss below which a program learns."""
MODELS = 3
"""Models of a program that are tried at most."""
_INPUT_CAP = 4_000_000
"""Elements of a batch that is copied, at most."""
_TARGET_CAP = 262_144
_KINDS = ("nllloss", "nllloss2d", "nlllossnd", "mseloss", "smoothl1loss", "huberloss", "binarycrossentropy",
          "binarycrossentropywithlogits")  # fmt: skip


class _Held:
    """One training call of one model, held while its step lasts."""

    def __init__(self, call: Call) -> None:
        self.model = call.model
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}
        self.reason = ""
        self.began = clocks.perf_counter()
        self.seconds = 0.0
        self.calls = 1


class Laboratory(Reader):
    """Runs the experiments at the end of the steps in MOMENTS."""

    sampled = frozenset({"call_begins", "call_ends", "backward_begins", "step_closes"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.on = scene.settings.probes
        self._held: dict[str, _Held] = {}
        self._targets: list[Target] = []
        self._sums: dict[str, tuple[tuple[int, ...], float]] = {}
        self._steady: dict[str, bool] = {}
        self._first: float | None = None
        """First loss."""
        self._learns = False
        self._outputs = Marks()
        """Marks of the outputs of models in the graph of a step, which goes with the graph."""

    def resumes(self) -> None:
        """Drop the calls and targets of the step before."""
        self._held.clear()
        self._targets.clear()

    @property
    def _now(self) -> bool:
        return self.on and self.scene.step in MOMENTS

    def call_begins(self, call: Call) -> None:
        """Copy the arguments of the first training call of each model in the steps of MOMENTS."""
        if not self.on or call.evaluating or not call.grad:
            return
        if self._now:
            self._remember(call)
        elif self.scene.step < MOMENTS[-1]:
            self._sums[call.model.name] = _checksum(call)

    def _remember(self, call: Call) -> None:
        name = call.model.name
        known = self._held.get(name)
        # One call per model, and a few models.
        if known is not None:
            known.calls += 1
            return
        if len(self._held) >= MODELS:
            return
        held = self._held[name] = _Held(call)
        before = self._sums.pop(name, None)
        # Another batch of the same size in the step before shows that the rows are samples.
        now = _checksum(call)
        self._steady[name] = before is not None and before[0] == now[0] and before[1] != now[1]
        # An experiment needs the whole model, and arguments that can be copied.
        if wraps(call.module) is not call.model.root:
            held.reason = "the program calls its parts by themselves"
            return
        tensors = [x for _, x in leaves((call.args, call.kwargs))]
        if not all(tensor_memory.present(x) for x in tensors):
            held.reason = "its batch holds tensors of a special kind"
            return
        if sum(x.numel() for x in tensors) > _INPUT_CAP:
            held.reason = "its batch is too large to copy"
            return
        try:
            held.args = rebuilt(call.args, lambda _, x: x.detach().clone())
            held.kwargs = rebuilt(call.kwargs, lambda _, x: x.detach().clone())
        except Unfit as unfit:
            held.reason = str(unfit)
        held.began = clocks.perf_counter()

    def call_ends(self, call: Call, output: Any) -> None:
        """Measure the time of the user's own pass."""
        if self._now and (held := self._held.get(call.model.name)) is not None and not held.seconds:
            held.seconds = clocks.perf_counter() - held.began
            for name, x in leaves(output):
                if (node := node_of(x)) is not None:
                    self._outputs.put(node, output_name(call.model.name, name))

    def backward_begins(self, backward: Backward) -> None:
        """Copy the targets of the loss."""
        if backward.value is not None and self.scene.step <= MOMENTS[-1]:
            self._first = backward.value if self._first is None else self._first
            self._learns = backward.value < LEARNT * self._first
        if self._now and backward.walk is not None and len(self._targets) < 8:
            for node in backward.walk.loss_nodes:
                if op_name(node) in _KINDS and len(self._targets) < 8:
                    target = _target(node, self._outputs)
                    if target is not None:
                        self._targets.append(target)
            for term in backward.terms or ():
                if "target_shape" not in term and len(term.get("operand_shapes") or ()) > 1:
                    self._targets.append(Target(str(term["kind"]), tuple(term["operand_shapes"][1])))

    def step_closes(self) -> None:
        """Run the experiments."""
        if not self._now:
            return
        held, targets = self._held, tuple(self._targets)
        self._held, self._targets = {}, []
        checked: set[str] = set()
        with collecting_later():  # nothing is made that stays: a collection took twice as long as the experiments
            for name, one in held.items():
                self._try(name, one, targets, checked)

    def _try(self, name: str, held: _Held, targets: tuple[Target, ...], checked: set[str]) -> None:
        alone = company()
        if alone:
            held.reason = held.reason or alone
            self._experiment(name, held, targets, checked)
            return
        with sessions_paused(), torch.no_grad(), undisturbed():  # the copy is no model of the program
            self._experiment(name, held, targets, checked)

    def _experiment(self, name: str, held: _Held, targets: tuple[Target, ...], checked: set[str]) -> None:
        bench: Bench | None = None
        for one in experiments():
            if one.late and (self.scene.step != MOMENTS[-1] or self._learns):
                continue
            bench = None if one.fresh and not held.reason else bench
            found: dict[str, Any] | None
            # A reason that holds for the model ends all experiments on it; others end one.
            try:
                if held.reason:
                    raise Unfit(held.reason)  # noqa: TRY301 (one way to say why not)
                if held.model.gone:
                    raise Unfit("the program has let go of it")  # noqa: TRY301
                if held.seconds * one.forwards > SECONDS:
                    raise Unfit("a pass of it takes too long")  # noqa: TRY301
                if bench is None:
                    made = twin(held.model.root, checked)
                    given = name, made, held.args, held.kwargs, targets, self._steady.get(name, False)
                    bench = Bench(*given, seconds=SECONDS, rate=self._rate(held))
                    bench.constant = _constant(bench)
                    # a copy that cannot be called ends the experiments on this model
                found = one.run(bench)
            except Unfit as unfit:
                found = {"judged": False, "reason": str(unfit)}
                held.reason = held.reason or (str(unfit) if bench is None else "")
            if found is not None:
                self.scene.log(
                    FactKey.EXPERIMENT,
                    {"id": f"{name}:{one.name}", "name": one.name, "model": name, "judged": True, **found},
                )

    def _rate(self, held: _Held) -> Rate | None:
        """Return the optimizer of a model: the one with the most of its parameters."""
        mine = {id(x) for x in parameters(held.model.root)}
        known = [(stream, opt) for stream in self.scene.optimizers.streams if (opt := stream.opt()) is not None]
        shares = [(sum(id(x) in mine for x in tensors(opt)), stream, opt) for stream, opt in known]
        most, stream, opt = max(shares, key=lambda share: share[0], default=(0, None, None))
        if not most or stream is None or not stream.lr:
            return None
        momentum = number(item(groups(opt)[0], "momentum"))
        return Rate(stream.type, stream.lr, momentum or 0.0)

    def stop(self) -> None:
        """Drop all calls and targets."""
        self._held.clear()
        self._targets.clear()


def _target(node: Any, outputs: Marks) -> Target | None:
    x = saved(node, "target")
    if x is None:
        return None
    kept = x.detach().clone() if x.numel() <= _TARGET_CAP else None
    below, last = next(parents(node), (None, 0))[0], []
    squashed = op_name(node) == "binarycrossentropy" and below is not None and op_name(below) == "sigmoid"
    if squashed and below is not None and outputs.get(below) is None:  # a sigmoid in the program, not in the model
        below, last = next(parents(below), (None, 0))[0], [torch.sigmoid]
    found = moves(below, lambda each: outputs.get(each) is not None)
    if found is None:
        return Target(op_name(node), tuple(x.shape), kept)
    ignore = signed(node, "ignore_index") if op_name(node).startswith("nll") else -100
    return Target(op_name(node), tuple(x.shape), kept, outputs.get(found[0]) or "", (*found[1], *last), ignore)


def _checksum(call: Call) -> tuple[tuple[int, ...], float]:
    """Return shape and a weighted sum of the first input: enough to distinguish one batch from the next."""
    x: Tensor | None = next((x for _, x in seen((call.args, call.kwargs))), None)
    if x is None or x.is_complex() or x.is_quantized:
        return (), 0.0
    flat = operation.spaced(x.detach(), 1, 4096).double().nan_to_num()
    weights = torch.arange(1, flat.numel() + 1, dtype=torch.float64, device=flat.device)
    return tuple(x.shape), float((flat * weights).sum())


def _constant(bench: Bench) -> bool:
    """Return True if all samples are equal in every tensor given to the model."""
    return all(not x.dim() or x.shape[0] < 2 or bool((x == x[:1]).all()) for _, x in bench.inputs())


READER = Laboratory
