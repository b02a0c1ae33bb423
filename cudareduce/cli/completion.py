"""What a shell completes: the names of kernels and suites, and the script that asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudareduce.cli.types import completed, why_no_name

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: How each shell comes to know the script, in a line for its own start.
INSTALL = {
    "bash": "to install, add to ~/.bashrc: source <(cudareduce completion bash)",
    "zsh": "to install, add to ~/.zshrc below compinit: source <(cudareduce completion zsh)",
    "fish": "to install: cudareduce completion fish > ~/.config/fish/completions/cudareduce.fish",
}


class Named(click.ParamType[str]):
    """What is called by its name: a kernel, and where `files` and `suites` say so a file or a
    published experiment, too; or one of some further `words`."""

    def __init__(
        self, name: str, *, kernels: bool = True, suites: bool = False,
        words: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.name, self._kernels, self._suites, self._words = name, kernels, suites, words

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """The same text, if anything can be called so."""
        problem = why_no_name(value)
        if problem:
            raise click.UsageError(f"{self.name}: {problem}", ctx)
        return str(value)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        """Names that begin so; where there is none, the shell may look for files."""
        from click.shell_completion import CompletionItem

        from cudareduce.library.registry import kernel_files, kernels_folder

        folders = (kernels_folder(), *(ctx.params.get("folders") or ()))
        names = []
        if self._kernels:
            names += sorted(path.stem for folder in folders for path in kernel_files(folder))
            folder, slash, _ = incomplete.rpartition("/")
            paths = sorted(Path(f"{folder}{slash}").glob("*.cu"))
            names += [f"{folder}{slash}{path.name}" for path in paths]
        if self._suites:
            found = (path for folder in folders for path in folder.glob("suites/*.toml"))
            names += sorted(path.stem for path in found)
        if self._kernels and self._suites:
            names.append("all")
        completions = completed([*names, *self._words], incomplete)
        return completions or [CompletionItem(incomplete, type="file")] * self._kernels


def completion_script(shell: str, commands: click.Command) -> str:
    """The script for a shell, click's own, with a line at its head that says how to install it."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(commands, {}, "cudareduce", "_CUDAREDUCE_COMPLETE").source()
    # Click's script for fish takes a list with commas for its first word.
    script = script.replace('string split ","', 'string split --max 1 ","')
    first, rest = script.split("\n", 1)
    head = [f"# {INSTALL[shell]}", first]
    if first.startswith("#"):  # a line that zsh looks for, and it must be the first
        head.reverse()
    return "\n".join([*head, rest])
