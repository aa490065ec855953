"""The errors that NeuralDBG raises on purpose, as one tree.

    NeuralDbgError
    ├── ConfigError          a setting is wrong: the message names it and the valid values
    ├── UnknownLayer         a name that is no layer: the message lists the nearest ones
    ├── UnknownName          a name that is no cause, event, failure or layer: the message lists the nearest ones
    ├── UnknownMetric        a metric that the program did not log: the message lists those that it did
    ├── UnknownStep          a step that is not recorded: the message says which are
    ├── AttachError          the model or optimizer cannot be watched as requested
    ├── RunFileError         a saved run cannot be read
    │   ├── RunNotFound      there is no run at that path
    │   ├── RunDamaged       the file is not a whole run file
    │   └── RunTooNew        written by a later NeuralDBG
    ├── ExportFailed         files could not be written: none of them is left
    ├── UnknownCause         a cause id that is not in the taxonomy
    ├── MissingExtra         an optional dependency is not installed: the message says which
    └── TrainingHalted       ``halt=True`` stopped the training; carries the diagnosis
        └── EndedByHand      a person ended the training in the debugger

A message says what happened and what to do. Only the command line exits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.nouns import Diagnosis


class NeuralDbgError(Exception):
    """The root: ``except NeuralDbgError`` catches every error that this package raises on purpose."""


class ConfigError(NeuralDbgError, ValueError):
    """Raised for a setting or argument with an invalid value."""


class UnknownLayer(NeuralDbgError, KeyError):
    """Raised if no layer has a name. ``suggestions`` holds the nearest names."""

    def __init__(self, name: str, suggestions: Iterable[str] = ()) -> None:
        self.name = name
        self.suggestions = tuple(suggestions)
        hint = f" Did you mean: {', '.join(self.suggestions)}?" if self.suggestions else ""
        self.message = f"no layer is called {name!r}.{hint}"
        super().__init__(self.message)

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return self.message


class UnknownStep(NeuralDbgError, LookupError):
    """Raised for a step that is not recorded."""


class UnknownName(NeuralDbgError, KeyError):
    """Raised if no cause, kind of event, failure or layer has a name. ``suggestions`` holds the nearest names."""

    def __init__(self, name: str, suggestions: Iterable[str] = ()) -> None:
        self.name = name
        self.suggestions = tuple(suggestions)
        hint = f" Did you mean: {', '.join(self.suggestions)}?" if self.suggestions else ""
        self.message = (
            f"no kind of event, cause, failure or layer is called {name!r}.{hint} `neuraldbg causes` lists the causes, "
            "the documentation of NeuralDbg.add_breakpoint the kinds of events."
        )
        super().__init__(self.message)

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.name, self.suggestions))


class AttachError(NeuralDbgError, RuntimeError):
    """Raised if the model or the optimizer cannot be watched as requested."""


class RunFileError(NeuralDbgError, OSError):
    """Raised if a saved run cannot be read, or a file of a session not written."""


class RunNotFound(RunFileError):
    """Raised if there is no run at a path."""


class RunDamaged(RunFileError):
    """Raised if a file is not a whole NeuralDBG run file."""


class RunTooNew(RunFileError):
    """Raised if a file was written by a later NeuralDBG."""


class ExportFailed(NeuralDbgError, OSError):
    """Raised if exported files could not be written to the disk; none of them is left."""


class UnknownMetric(NeuralDbgError, KeyError):
    """Raised if the program logged no metric of a name. ``suggestions`` holds the nearest names that it did log."""

    def __init__(self, name: str, logged: Iterable[str] = ()) -> None:
        import difflib  # noqa: PLC0415 (a program that is only watched needs none of it)

        self.name, self.logged = name, tuple(logged)
        near = difflib.get_close_matches(name, self.logged, n=3, cutoff=0.5)
        self.suggestions = tuple(near)
        hint = f"Did you mean: {', '.join(near)}?" if near else f"Logged were: {', '.join(self.logged)}."
        self.message = (
            f"no metric is called {name!r}. {hint if self.logged else 'The run has none: log them by NeuralDbg.log.'}"
        )
        super().__init__(self.message)

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.name, self.logged))


class UnknownCause(NeuralDbgError, KeyError):
    """Raised if no cause of the taxonomy has an id. ``suggestions`` holds the nearest ids."""

    def __init__(self, name: str, suggestions: Iterable[str] = ()) -> None:
        self.name = name
        self.suggestions = tuple(suggestions)
        hint = f" Did you mean: {', '.join(self.suggestions)}?" if self.suggestions else ""
        self.message = f"no cause is called {name!r}.{hint} `neuraldbg causes` lists them all."
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message


class MissingExtra(NeuralDbgError, ImportError):
    """Raised if an optional dependency is not installed; the message names the extra."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional package: in your clone of NeuralDBG, pip install '.[{extra}]'")


class TrainingHalted(NeuralDbgError, RuntimeError):
    """Raised to stop training before a bad step is applied; the weights are those of the step before.

    ``reason`` is the trigger's sentence, ``step`` the 0-based step that was not applied, and
    ``diagnosis`` the full diagnosis at that moment.
    """

    def __init__(self, reason: str, step: int, diagnosis: Diagnosis | None = None) -> None:
        self.reason = reason
        self.step = step
        self.diagnosis = diagnosis
        super().__init__(f"training halted before step {step} was applied: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:  # an exception crosses processes with its own arguments
        return (type(self), (self.reason, self.step, self.diagnosis))


class EndedByHand(TrainingHalted):
    """Raised at a stop in the debugger if the person there ends the training."""
