"""``neuraldbg completion``: the script by which a shell completes commands, options, runs, layers and causes.

The script asks the command line itself, by click's own protocol: ``COMPLETERS`` says what is known of an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from neuraldbg.cli.command import OK, Command, Result, examples

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

PROGRAM = "neuraldbg"
INSTALL = {
    "bash": (
        "For this shell:    source <(neuraldbg completion bash)",
        "For all to come:   mkdir -p ~/.local/share/bash-completion/completions",
        "                   neuraldbg completion bash > ~/.local/share/bash-completion/completions/neuraldbg",
    ),
    "zsh": (
        "For this shell:    source <(neuraldbg completion zsh)   (after `autoload -Uz compinit && compinit`)",
        "For all to come:   neuraldbg completion zsh > ~/.zfunc/_neuraldbg, and in ~/.zshrc, before compinit:",
        "                   fpath+=~/.zfunc",
    ),
    "fish": (
        "For this shell:    neuraldbg completion fish | source",
        "For all to come:   neuraldbg completion fish > ~/.config/fish/completions/neuraldbg.fish",
    ),
}
"""How the script of each shell is installed."""


@examples(
    ("completion bash > ~/.local/share/bash-completion/completions/neuraldbg", "for bash"),
)
@click.command("completion", cls=Command, short_help="Print the script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(tuple(INSTALL)), metavar="SHELL")
@click.pass_context
def COMMAND(ctx: click.Context, shell: str) -> Result:  # noqa: N802 (the name is the contract)
    """Print the script with which SHELL completes commands, options, saved runs, layers, statistics and causes.

    SHELL is bash, zsh or fish. The first lines of the script say how to install it.
    """
    kind: type[ShellComplete] | None = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source().strip()
    told = [f"# {line}" for line in INSTALL[shell]]
    first, _, rest = script.partition("\n")
    # zsh finds a file's command in its first line.
    lines = [first, *told, rest] if first.startswith("#compdef") else [*told, script]
    click.echo("\n".join(lines))
    return OK
