"""Refuse stops at layers and events that there are not, before data are prepared and the training starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neuraldbg.nouns import Layout


def check_names(options: Mapping[str, Any], file: str | None, network: str | None) -> None:
    """Raise UsageError for a stop of `neural debug` that cannot come; `file` is None for a script, whose layers are not
    known yet.
    """
    from neuraldbg.cli.debug import check_stops  # noqa: PLC0415 (--help needs none of it)
    from neuraldbg.control.asked_stops import Asked  # noqa: PLC0415
    from neuraldbg.control.hook_triggers import patterns_of  # noqa: PLC0415
    from neuraldbg.errors import ConfigError, UnknownLayer  # noqa: PLC0415
    from neuraldbg.layer_alias import matching, resolve  # noqa: PLC0415

    try:
        patterns = patterns_of(options["breakpoints"])
        check_stops(options["events"], Asked(patterns, options["at"], each=options["step"]))
        if not patterns or file is None:
            return
        layout = layout_of(file, network)
        for pattern in patterns:
            if not matching(layout, pattern):
                resolve(layout, pattern)
    except (ConfigError, UnknownLayer) as error:
        raise click.UsageError(f"--breakpoint: {error}") from None


def layout_of(file: str, network: str | None) -> Layout:
    """Return the layers of the program that a file becomes, as the debugger will find them. The random numbers of the
    training stay what they are.
    """
    from neural.building import compile_plan, load  # noqa: PLC0415
    from neural.check.checker import checked  # noqa: PLC0415
    from neural.language.reader import read  # noqa: PLC0415
    from neuraldbg.nouns import Layout  # noqa: PLC0415
    from neuraldbg.nouns.layout import Layer  # noqa: PLC0415

    source = read(file)
    plan = checked(source, network)
    program = load(compile_plan(plan, source.text), plan.name)
    with program.torch.random.fork_rng(devices=()):
        model = program.build_model()
    return Layout(
        tuple(
            Layer(
                path,
                type(module).__name__,
                type(model).__name__,
                not any(True for _ in module.children()),
                tuple(name for name, _ in module.named_parameters(recurse=False)),
            )
            for path, module in model.named_modules()
        )
    )
