"""ztorch completion: the script that lets a shell complete commands."""

from __future__ import annotations

import click

from ztorch.commands.group import examples

_ONE_WORD = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}"  # so that bash does not split words at colons


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
@examples("""ztorch completion bash > ~/.local/share/bash-completion/completions/ztorch
             ztorch completion fish > ~/.config/fish/completions/ztorch.fish""")
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    script = completion_class(context.find_root().command, {}, "ztorch", "_ZTORCH_COMPLETE")
    click.echo(script.source_template % script.source_vars())
    if shell == "bash":
        click.echo(_ONE_WORD)
