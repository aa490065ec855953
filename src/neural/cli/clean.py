"""`neural clean`: removes what the commands wrote."""

from __future__ import annotations

import click

from neural.workspace import Workspace


@click.command("clean", short_help="Remove what these commands wrote.")
@click.option("--yes", is_flag=True, help="Remove without asking.")
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
def COMMAND(yes: bool, dry_run: bool) -> int:  # noqa: N802 (the contract)
    """Remove the folder .neural of this directory, and the files that other commands have written by its list: models,
    pictures, exports. A file that was changed since then stays, and so does everything outside of this directory, and
    all that another program wrote.
    """
    workspace = Workspace()
    if workspace.folder.is_symlink():
        click.echo(f"{workspace.folder} is a link, which these commands did not make, and stays")
    removal = workspace.removable()
    for path in removal.kept:
        click.echo(f"{path} {workspace.why_kept(path)}, and stays")
    if not removal.gone:
        click.echo("There is nothing to remove.")
        return 0
    for path in removal.gone:
        click.echo(f"{'would remove' if dry_run else 'to remove'}: {path}")
    if dry_run:
        return 0
    if not yes and not click.confirm("Remove them?"):
        click.echo("Nothing was removed.")
        return 0
    workspace.clean()
    click.echo(f"Removed: {len(removal.gone)}")
    return 0
