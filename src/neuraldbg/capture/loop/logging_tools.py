"""The metrics that the program logs with a tool of its own: its calls enter, values by name leave.

    torch.utils.tensorboard.SummaryWriter.add_scalar, .add_scalars    and those of tensorboardX
    wandb.Run.log, wandb.log
    mlflow.MlflowClient.log_metric, .log_batch                       which mlflow.log_metric and log_metrics call
    lightning.pytorch.LightningModule.log                            which log_dict calls; and of pytorch_lightning
    transformers.Trainer.log

Nothing is imported: a tool is wrapped once the program has imported it. What a tool logs by another tool within its own
call (the Trainer by a SummaryWriter) counts once. Lightning keeps what ``log`` got, and gives it to its loggers later:
what these write with one of the tools above counts as a further value, which belongs to the step of that moment. It may
be the mean of an epoch, or of a metric object, which ``log`` alone does not tell, so it is not passed over. A wrapper
changes no argument and no result, and reads none but numbers; an error of ours is counted, and does not reach the
program.
"""

from __future__ import annotations

import sys
import threading
from pathlib import PurePath
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

from neuraldbg.capture.guest.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from neuraldbg.capture.guest.guard import Tally
    from neuraldbg.capture.guest.stand_in import Around
    from neuraldbg.capture.loop.logged_metrics import Metrics

_KNOWN = 256
"""Names of which the first writer is remembered."""
_DEPTH = 4
"""Levels of nested dictionaries of which the numbers are taken."""


class Given(NamedTuple):
    """The arguments of a call of a tool."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def get(self, place: int, name: str) -> Any:
        """Return an argument by its place, ``self`` being 0, or its name; None if it was not given."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name)


def _scalar(given: Given) -> Iterator[tuple[str, Any]]:
    yield given.get(1, "tag"), given.get(2, "scalar_value")


def _scalars(given: Given) -> Iterator[tuple[str, Any]]:
    for name, value in _items(given.get(2, "tag_scalar_dict")):
        yield f"{given.get(1, 'main_tag')}/{name}", value


def _of_run(given: Given) -> Iterator[tuple[str, Any]]:
    yield from _flat(given.get(1, "data"))


def _of_wandb(given: Given) -> Iterator[tuple[str, Any]]:
    yield from _flat(given.get(0, "data"))


def _of_client(given: Given) -> Iterator[tuple[str, Any]]:
    yield given.get(2, "key"), given.get(3, "value")


def _of_batch(given: Given) -> Iterator[tuple[str, Any]]:
    for metric in given.get(2, "metrics") or ():
        yield metric.key, metric.value


def _of_module(given: Given) -> Iterator[tuple[str, Any]]:
    yield given.get(1, "name"), given.get(2, "value")


def _of_trainer(given: Given) -> Iterator[tuple[str, Any]]:
    yield from _items(given.get(1, "logs"))


def _items(values: Any) -> list[tuple[Any, Any]]:
    """Return the items of a dictionary, without running code of a subclass; none of anything else."""
    return list(dict.items(values)) if issubclass(type(values), dict) else []


def _flat(values: Any, before: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the items of nested dictionaries, the names joined by dots, as wandb does."""
    for name, value in _items(values):
        if issubclass(type(value), dict):
            if depth:
                yield from _flat(value, f"{before}{name}.", depth - 1)
        else:
            yield f"{before}{name}", value


class Tool(NamedTuple):
    """A function of a tool, and the reader of its arguments."""

    module: str
    """Name of the module that has it."""
    owner: str
    """Name of the class in that module. "" if the module itself has the function."""
    name: str
    read: Callable[[Given], Iterator[tuple[str, Any]]]
    folders: bool = False
    """True if ``self`` is a writer to a folder: two writers may use one name for different numbers."""


TOOLS = (
    Tool("lightning.pytorch.core.module", "LightningModule", "log", _of_module),
    Tool("mlflow.tracking.client", "MlflowClient", "log_batch", _of_batch),
    Tool("mlflow.tracking.client", "MlflowClient", "log_metric", _of_client),
    Tool("pytorch_lightning.core.module", "LightningModule", "log", _of_module),
    Tool("tensorboardX.writer", "SummaryWriter", "add_scalar", _scalar, folders=True),
    Tool("tensorboardX.writer", "SummaryWriter", "add_scalars", _scalars, folders=True),
    Tool("torch.utils.tensorboard.writer", "SummaryWriter", "add_scalar", _scalar, folders=True),
    Tool("torch.utils.tensorboard.writer", "SummaryWriter", "add_scalars", _scalars, folders=True),
    Tool("transformers.trainer", "Trainer", "log", _of_trainer),
    Tool("wandb.sdk.wandb_run", "Run", "log", _of_run),
)
_BOUND = Tool("wandb", "", "log", _of_wandb)
"""``wandb.log`` of a run that began before the session: the method of that run as it was then."""


class LoggingTools:
    """Wraps the functions of logging tools while a session runs, by methods of ``Patches``, which restores them."""

    def __init__(self, metrics: Metrics, surround: Callable[..., None], original_of: Callable[[Any], Any]) -> None:
        self._metrics, self._surround, self._original_of = metrics, surround, original_of
        self._missing = list(TOOLS)
        self._inside = threading.local()
        self._folders: dict[str, str] = {}
        """The folder of the first writer of each name."""

    @property
    def tally(self) -> Tally:
        """The counts of errors and time."""
        return self._metrics.tally

    def follow_imports(self) -> None:
        """Wrap the functions of the tools that the program has imported since."""
        modules = sys.modules
        if any(tool.module in modules for tool in self._missing):
            self._wrap()

    @guarded
    def _wrap(self) -> None:
        missing, self._missing = self._missing, []
        for tool in missing:
            module = sys.modules.get(tool.module)
            owner = vars(module).get(tool.owner) if module is not None else None
            if not isinstance(owner, type) or tool.name not in vars(owner):  # not imported, or not to its end
                self._missing.append(tool)
                continue
            before = vars(owner)[tool.name]
            self._surround(owner, tool.name, self._around(tool))
            bound = vars(sys.modules.get("wandb", sys)).get("log")
            if tool.read is _of_run and type(bound) is MethodType and bound.__func__ is before:
                self._surround(sys.modules["wandb"], "log", self._around(_BOUND))

    def _around(self, tool: Tool) -> Callable[..., Around]:
        def around(*args: Any, **kwargs: Any) -> Around:
            inside = self._inside
            if not self._metrics.listens or getattr(inside, "now", False):
                return
            self._see(tool, Given(args, kwargs))
            inside.now = True
            try:
                yield
            finally:
                inside.now = False

        return around

    @guarded
    def _see(self, tool: Tool, given: Given) -> None:
        values: Mapping[str, Any] = {name: value for name, value in tool.read(given) if issubclass(type(name), str)}
        if tool.folders and given.args:
            values = {self._named(name, given.args[0]): value for name, value in values.items()}
        self._metrics.log(values)

    def _named(self, name: str, writer: Any) -> str:
        """Return the name of a metric of a writer: a second writer puts the name of its folder in front."""
        folder = str(vars(writer).get("log_dir") or vars(writer).get("logdir") or "")
        if name not in self._folders and len(self._folders) < _KNOWN:
            self._folders[name] = folder
        first = self._folders.get(name, folder)
        return name if first == folder else f"{PurePath(folder).name}/{name}"

    def let_go(self) -> None:
        """Give ``wandb`` the method without our wrapper, if a run has begun since: it keeps what it has bound."""
        wandb = sys.modules.get("wandb")
        bound = vars(wandb).get("log") if wandb is not None else None
        if type(bound) is MethodType and wandb is not None:
            original = self._original_of(bound.__func__)
            if original is not None:
                wandb.log = MethodType(original, bound.__self__)  # type: ignore[attr-defined]
