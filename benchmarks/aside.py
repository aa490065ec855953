"""This tool taken off a training and put on again, between two steps: what it costs in one and the same process.

Two processes that do the same differ by a percent or two for good, as their memory happens to lie. Where one process
trains with the tool in some turns and without it in others, both have the same memory, the same threads, the same data.
What is left in the process (memory that is in use, a thread that writes) the turns without the tool bear as well, so
this does not stand in for a comparison with a process that never had it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from torch import nn
from torch.optim import optimizer

if TYPE_CHECKING:
    from types import TracebackType

    from models import Trainer

    from neuraldbg import NeuralDbg

    class Way(Protocol):
        """A context manager that can be entered again and again."""

        def renew(self) -> None:
            """Have what is trained from now on compiled anew, with the tool and without it, if anything was."""

        def __enter__(self) -> None: ...

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
        ) -> None: ...


class Aside:
    """While it is entered torch is what it was before the session, and the model, which must have no hooks of its own,
    has none. What was compiled keeps what was compiled into it: see ``Apart``. To the session the steps that it does
    not see are a program that changed weights between two steps.
    """

    def __init__(self, dbg: NeuralDbg, model: nn.Module) -> None:
        self._patches = dbg._capture._patches  # noqa: SLF001 (no user needs a session that goes away between two steps)
        of_modules = ("_forward_hooks", "_forward_pre_hooks")
        self._tables: list[dict[int, Any]] = [
            optimizer._global_optimizer_pre_hooks,  # noqa: SLF001 (its registration can only be undone by the session)
            optimizer._global_optimizer_post_hooks,  # noqa: SLF001
            *(getattr(module, name) for module in model.modules() for name in of_modules),
        ]
        self._away: list[tuple[Any, str, Any]] = []
        self._hooks: list[tuple[dict[int, Any], dict[int, Any]]] = []

    def __enter__(self) -> None:
        for put in reversed(self._patches._saved):  # noqa: SLF001
            assert vars(put.owner)[put.name] is put.patched
            self._away.append((put.owner, put.name, put.patched))
            if put.own:
                setattr(put.owner, put.name, put.original)
            else:
                delattr(put.owner, put.name)
        self._hooks = [(table, dict(table)) for table in self._tables if table]
        for table, _ in self._hooks:
            table.clear()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        while self._away:
            owner, name, patched = self._away.pop()
            setattr(owner, name, patched)
        for table, hooks in self._hooks:
            table.update(hooks)

    def renew(self) -> None:
        pass


class Nothing:
    """The same for a training without a tool: Python forgets what it has learnt of the types, as it does there."""

    def __enter__(self) -> None:
        nn.Module.__call__ = nn.Module.__call__  # type: ignore[method-assign]
        optimizer.Optimizer.zero_grad = optimizer.Optimizer.zero_grad  # type: ignore[method-assign]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.__enter__()

    def renew(self) -> None:
        pass


class Apart:
    """The same for a compiled training: while it is entered, this is one of the same model that was compiled without
    the tool. The first step compiles it, and each of both after ``renew``.
    """

    def __init__(self, trainer: Trainer, way: Way) -> None:
        self._trainer, self._way = trainer, way
        self._other = trainer.compiled_apart()

    def renew(self) -> None:
        self._trainer.forward, self._other = self._trainer.compiled_apart(), self._trainer.compiled_apart()

    def _exchange(self) -> None:
        self._trainer.forward, self._other = self._other, self._trainer.forward

    def __enter__(self) -> None:
        self._way.__enter__()
        self._exchange()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._exchange()
        self._way.__exit__(kind, error, tb)


def of(trainer: Trainer, way: Way) -> Way:
    """Return the way to take a tool off a training, given that for an eager one."""
    return Apart(trainer, way) if trainer.compiled else way
