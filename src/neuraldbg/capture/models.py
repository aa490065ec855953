"""Which models are trained: finding them when they are called, and telling training passes from evaluation.

A pass counts as training once a backward reached its output. Evaluation with gradients left on (a forgotten
``no_grad``) does not look like training in eval mode, and training in eval mode does not look like evaluation.
"""

from __future__ import annotations

import functools
import weakref
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.capture import memory, op, program
from neuraldbg.capture.guest import collecting_later, guarded, hook_of
from neuraldbg.capture.kernel import set_hook
from neuraldbg.capture.leaves import leaves
from neuraldbg.capture.module_tree import has_parameters, modules, training
from neuraldbg.capture.names import find_root, wraps
from neuraldbg.capture.passes import Model, Pass
from neuraldbg.capture.program_objects import Identities, name_of
from neuraldbg.capture.reader import Call
from neuraldbg.capture.tensor_kinds import node_of, readable, silently
from neuraldbg.capture.unseen import passed_through
from neuraldbg.nouns import Site

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.capture.hooks import HookManager
    from neuraldbg.capture.light import Light
    from neuraldbg.capture.owner import Owner
    from neuraldbg.capture.params import Params

_graph_task = torch._C._current_graph_task_id  # noqa: SLF001
_tracing = torch._C._get_tracing_state  # noqa: SLF001
_INPUTS = 8
_MODELS = 32
"""Models that are discovered at most: a program that trains copies of copies would else be held in memory for ever."""
_PASSES = 64
"""Passes of one step that are remembered."""


class Models:
    """The watched models and their current pass."""

    def __init__(
        self,
        hooks: HookManager,
        params: Params,
        before_pass: Callable[[], None],
        owner: Owner,
        tell: Callable[..., None],
        *,
        discover: bool,
    ) -> None:
        self._tell = tell
        self.light: Light
        """Takes the calls of light steps that go as usual."""
        self.outermost: dict[int, tuple[nn.Module, Model]] = {}
        """What the program calls, by identity: a module may hash and compare itself in its own way."""
        self._call: Call | None = None
        self.owner, self.switch = owner, owner.switch
        self.hooks = hooks
        self._before_pass = before_pass
        self._current: Pass | None = None
        self.params = params
        self.tally = hooks.tally
        self.discover = discover
        self.found: list[Model] = []
        self.evals = 0
        self.forwards = 0
        self.entered = False
        """Whether any watched model was ever called eagerly (a function compiled as a whole calls none)."""
        self.reached = False
        """Whether a backward has reached a watched model's output since this was last cleared."""
        self.must_be_reached = False
        """Whether some backward of the run did not reach a watched model: then it is looked at in light steps, too."""
        self.graded = self.committed = 0
        """Training passes of the run with gradients, and those of them that a backward reached."""
        self.passes: list[Pass] = []
        """Passes of this step that a backward reached."""
        self.latest: tuple[Model, Any] | None = None
        """The newest pass's model and inputs, while the batch is to be described."""
        self.describe = False
        self._of: Identities[nn.Module, Model | None] = Identities()
        self._input_rows: dict[tuple[str, str], int | None] = {}
        self._inside = False
        self._seen: tuple[Model, nn.Module, Any, Any] | None = None
        """The newest call of the current light step: model, module, arguments."""

    @property
    def inside(self) -> bool:
        """Whether the thread that is followed is in a call of a watched model."""
        return self._inside

    def release(self) -> None:
        """Forget the call under way: its thread has ended."""
        self._inside = False
        self._call = self._current = self._seen = None

    @silently
    @collecting_later()
    def watch(self, module: nn.Module, name: str = "", *, prefix: str = "") -> Model:
        """Attach to a model: hooks on its layers, its parameters in the table."""
        root = wraps(module)
        name = name or name_of(root)
        before = set(self.hooks.modules)
        self.hooks.attach(root, prefix, name)
        added = {path: m for path, m in self.hooks.modules.items() if path not in before}
        for path, child in added.items():
            self.params.add(path, child, name)
        model = Model(name, prefix, root, program.mode_layers(added))
        self.found.append(model)
        for child in modules(root):
            self._of[child] = model
        self._of[module] = model
        return model

    def follow_changes(self) -> None:
        """Notice layers that were added, replaced or taken away since their model was attached."""
        for model in self.found:
            added, gone = self.hooks.sync(model.root, model.prefix, model.name)
            if gone:
                self.params.forget({id(module) for module in gone})
            for path, module in added.items():
                self.params.add(path, module, model.name)
                self._of[module] = model
            if added or gone:
                layers = {p: m for p, m in self.hooks.modules.items() if self._of.get(m) is model}
                model.mode_layers = program.mode_layers(layers)

    def wrap_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the function that stands in for ``nn.Module.__call__``."""
        is_compiling, traced, switch = torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, self.switch
        owner = self.owner
        light, ours = self.light, _stands_for(original)
        glance, forget = light.glance, light.forget
        direct = self.hooks.direct

        @passed_through
        def heard(module: nn.Module, args: Any, kwargs: Any) -> Any:
            output = original(module, *args, **kwargs)
            probe = direct.get(id(module))
            if probe is not None:
                probe(module, args, output)
            return output

        @functools.wraps(original)
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if traced():
                return original(module, *args, **kwargs)
            if self._inside:  # a layer of a model: there may be hundreds, and each nanosecond counts for all
                if not (ours and module._compiled_call_impl is None):  # noqa: SLF001
                    return heard(module, args, kwargs)
                probe = direct.get(id(module)) if direct else None
                if probe is None:
                    return module._call_impl(*args, **kwargs)  # noqa: SLF001
                output = module._call_impl(*args, **kwargs)  # noqa: SLF001
                probe(module, args, output)
                return output
            if is_compiling():
                return original(module, *args, **kwargs)
            if glance(module, args, kwargs):
                if light.sighted:
                    self._look(module, args, kwargs)
                self._inside = True
                try:
                    return heard(module, args, kwargs)
                except BaseException:
                    forget()
                    raise
                finally:
                    self._inside = False
            if not (self.enter(module, args, kwargs) if switch else self._glimpse(module, args, kwargs)):
                return heard(module, args, kwargs)  # also in a thread that is not followed
            self._inside = True
            try:
                output = heard(module, args, kwargs)
            except BaseException:  # out of memory, say, and the program tries again: hold nothing of the batch
                self._call = self._current = self._seen = None
                owner.claiming = False
                raise
            finally:
                self._inside = False
            if self._current is not None or self._call is not None:
                self.leave(output)
            owner.claiming = False
            return output

        return call

    @guarded
    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> bool:
        """Begin an outermost call; False if it is none of ours."""
        if _graph_task() != -1 or _tracing() is not None or op.transforming():
            return False
        if not self.owner.claims():
            return False
        model = self._model_of(module)
        if model is None:
            self.owner.claiming = False
            return False
        self.entered = True
        self._before_pass()
        self._note(module, model)
        hooks = self.hooks
        if model.entry is None or wraps(module) is model.root:
            model.entry = weakref.ref(wraps(module))
        first = model.entry() is wraps(module)
        hooks.passes += first
        self._current = None
        if not torch.is_grad_enabled():
            self.evals += first
            hooks.active = False
            self._begin_call(Call(model, module, args, kwargs, False, True, first))
            return True
        trains, evaluating = training(model.root), self._evaluating(model)
        self.owner.open = True
        model.thread = get_ident()
        hooks.active = not evaluating and hooks.sampled
        still = sum(1 for layer in model.mode_layers.values() if not training(layer))
        self._current = Pass(model, trains, still, first, thread=model.thread)
        if self.describe and len(self.passes) < _PASSES:
            self._current.modes = program.modes(model.name, model.root, model.mode_layers)
        if first and not evaluating:
            self._current.batch = self._read_inputs(model, args, kwargs)
        self._begin_call(Call(model, module, args, kwargs, True, evaluating, first))
        return True

    @guarded
    def _glimpse(self, module: nn.Module, args: Any, kwargs: Any) -> bool:
        """Begin a call in a light step: nobody is told of it unless its loss looks odd."""
        switch = self.switch
        model = self._of.get(module) if switch.on else None
        if (model is None and not switch.full) or _graph_task() != -1:
            return False
        if not self.owner.claims() and not self._asks(module, model):
            return False
        if switch:  # in a thread that was not followed until now
            return bool(self.enter(module, args, kwargs))
        if model is None:
            self.owner.claiming = False
            return False
        self._before_pass()
        if self.switch:  # the step that this has closed was the last light one
            return bool(self.enter(module, args, kwargs))
        self._note(module, model)
        if self.light.sighted:
            self._look(module, args, kwargs)
        if torch.is_grad_enabled():
            self.owner.open = True
            self._seen = (model, module, args, kwargs)
            if self.must_be_reached:
                self._current = Pass(model, training(model.root), 0, first=False, thread=get_ident())
        return True

    def _note(self, module: nn.Module, model: Model) -> None:
        """Note what the program calls. Parts of watched models live as long as these."""
        if id(module) not in self.outermost:
            if len(self.outermost) >= _PASSES:
                self.outermost.clear()
            self.outermost[id(module)] = (module, model)

    @guarded
    def _look(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Begin a call in a light step whose sites are read."""
        model = self._of.get(module)
        self.hooks.active = False
        if model is None or _tracing() is not None or op.transforming():
            return
        first = model.entry is None or model.entry() is wraps(module)
        self.hooks.passes += first
        self.hooks.active = torch.is_grad_enabled() and not self._evaluating(model)
        if first and self.hooks.active:
            self._read_inputs(model, args, kwargs)

    @staticmethod
    def _evaluating(model: Model) -> bool:
        """Whether a pass with gradients is an evaluation all the same.

        A model seen training in train mode, now in eval mode with gradients on, is evaluated by somebody who forgot
        no_grad: do not mix that into the step, unless a backward has shown that it does train like this.
        """
        return not training(model.root) and model.trained_in_train_mode and not model.trained_in_eval_mode

    def tell_of_glimpse(self) -> None:
        """Tell of the newest call of a light step after all."""
        if self._seen is not None:
            model, module, args, kwargs = self._seen
            self._tell("call_begins", Call(model, module, args, kwargs, True, self._evaluating(model), True))

    def _begin_call(self, call: Call) -> None:
        self._call = call
        self._tell("call_begins", call)

    def _asks(self, module: nn.Module, model: Model | None) -> bool:
        """Whether this thread, which is another than was followed, is followed from now on.

        A program may train in a thread of its own while the one that imported torch shows a window; another may serve
        predictions while the first trains, and that must not end a step.
        """
        if not torch.is_grad_enabled() or (model is None and not self.discover):
            return False
        front = model is not None and model.trained and (model.entry is None or model.entry() is wraps(module))
        return (front or not self.owner.waits()) and bool(self._asks_in_earnest(module, model, front=front))

    @guarded
    def _asks_in_earnest(self, module: nn.Module, model: Model | None, *, front: bool) -> bool:
        if _tracing() is not None or op.transforming() or (model is None and not has_parameters(module)):
            return False
        return self.owner.asks("call", ours=front, new=True)

    @guarded
    def leave(self, output: Any) -> None:
        """End an outermost call: arrange to be told when a backward reaches its output."""
        call, self._call = self._call, None
        current, self._current = self._current, None
        if not self.switch.here():  # the session has ended meanwhile, or another thread goes on with it
            return
        if call is not None:
            self._tell("call_ends", call, output)
        self.hooks.active = self.hooks.sampled and bool(self.switch)
        if current is None:
            return
        graded = False
        for count, (_, x) in enumerate((("", output),) if type(output) is Tensor else leaves(output, closed=True)):
            if count == 4:
                break
            node = node_of(x)
            if node is not None:
                graded = True
                hook = hook_of(self._reached, current)
                if readable(x):
                    set_hook(x, hook)
                else:
                    node.register_prehook(hook)
        self.graded += graded and current.first and call is not None and not call.evaluating

    def _reached(self, done: Pass, grad: object) -> None:
        """Hear that a backward reached a pass's output; called by autograd, in whatever thread runs the backward."""
        if self.hooks.here():
            self.commit(done)
        else:
            self.owner.reached_beside(done.thread)

    @guarded
    def commit(self, done: Pass) -> None:
        """Note that a backward reached a pass's output."""
        self.reached = True
        if done.committed:
            return
        done.committed = True
        if len(self.passes) < _PASSES:
            self.passes.append(done)
        self.forwards += done.first
        self.committed += done.first
        if done.training:
            done.model.trained_in_train_mode = True
        else:
            done.model.trained_in_eval_mode = True
        if not self.owner.trained:
            self.owner.trains()
            self._drop_untrained()

    @property
    def plain(self) -> bool:
        """Whether every backward pass reaches a watched model, as far as is known, and it is called as a module."""
        return self.entered and not self.must_be_reached and bool(self.outermost)

    def resume(self, seen: tuple[Model, nn.Module, Any, Any] | None) -> None:
        """Go on in a light step whose newest call native code has seen."""
        self._seen = seen

    def forget_glimpse(self) -> None:
        """Hold nothing of a light step beyond its end."""
        self._seen = None

    def begin_step(self) -> None:
        """Forget the passes of the step before."""
        self.passes.clear()
        self.forwards = self.evals = 0
        self.reached = False
        self.latest = None

    def _model_of(self, module: nn.Module) -> Model | None:
        known: Model | None = self._of.get(module)
        if known is not None or module in self._of:
            return known
        inner = wraps(module)
        known = self._of.get(inner)
        if known is None and self.discover and len(self.found) < _MODELS and has_parameters(module):
            known = self._discover(inner)
        self._of[module] = known
        return known

    def _drop_untrained(self) -> None:
        """Give up models that were found as several threads began to train at once, and another thread calls."""
        mine = self.switch.thread
        for model in [model for model in self.found if self.discover and model.thread not in (0, mine)]:
            if model.trained:
                continue
            self.found.remove(model)
            self.params.forget({id(module) for module in self.hooks.drop(model.name)})
            for module in [module for module, known in self._of.items() if known is model]:
                self._of[module] = None
            self.outermost = {at: pair for at, pair in self.outermost.items() if pair[1] is not model}

    def _discover(self, module: nn.Module) -> Model:
        root, name, others = find_root(module)
        root = wraps(root)
        taken = {model.name for model in self.found}
        unique, number = name, 2
        while unique in taken:
            unique, number = f"{name}{number}", number + 1
        return self.watch(root, unique, prefix=unique if (self.found or others) else "")

    def _read_inputs(self, model: Model, args: Any, kwargs: Any) -> int:
        """Read the statistics of a pass's inputs. Returns the batch size, 0 if there is no tensor."""
        inputs: Any = args[0] if len(args) == 1 and not kwargs else {**dict(enumerate(args)), **kwargs}
        size = 0
        every = (("", inputs),) if type(inputs) is Tensor else leaves(inputs)
        for count, (leaf, x) in enumerate(every):
            if count == _INPUTS:
                break
            held = op.shown(x)
            size = size or _samples(x if held is None else held)
            if held is None:
                continue
            key = (model.name, leaf)
            if key not in self._input_rows:
                self._input_rows[key] = self.hooks.table.add(Site("input", model.prefix, 0, leaf))
            row = self._input_rows[key]
            if row is not None:
                self.hooks.table.observe(held, row)
        if self.describe and self.latest is None:
            self.latest = (model, program.batch(model.name, inputs))
        return size


def _samples(x: Tensor) -> int:
    """Return the size of the first axis of an input, 0 where only code of the program's could tell."""
    if type(x) not in memory.ORDINARY and not memory.is_sharded(x):
        return 0
    return int(x.size(0)) if x.dim() else 1  # a nested one has no shape


def _stands_for(call: Callable[..., Any]) -> bool:
    """Whether a ``Module.__call__`` is torch's own, which does no more than call one of two methods: then what stands
    for it can do that, and a layer's call is as deep as it was.
    """
    code = getattr(call, "__code__", None)
    known = code is not None and code.co_names == ("_compiled_call_impl", "_call_impl")
    return known and call is nn.Module._wrapped_call_impl  # noqa: SLF001
