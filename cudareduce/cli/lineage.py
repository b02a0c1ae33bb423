"""`list --tree`: each kernel below the one that it is a step from, with what the step gained."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cudareduce.cli.facts import measured_on, own_gains, times_text
from cudareduce.escapes import shown
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import Choice, Registry
from cudareduce.report.terminal import PIPE
from cudareduce.results.gains import Gain

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree


def print_tree(registry: Registry, chosen: Sequence[Choice], results: Sequence[Path]) -> None:
    """The lineages of the chosen kernels, whole: those that others come from stand there too."""
    from rich.console import Console
    from rich.tree import Tree

    gained = own_gains(registry, results)
    kernels = _with_ancestors(registry, [choice.kernel for choice in chosen])
    root = Tree("", hide_root=True, guide_style="dim")
    branches: dict[str | None, Tree] = {}
    for kernel in kernels.values():  # in order of lineage: a step stands behind what it is from
        above = branches.get(kernel.after, root)
        branches[kernel.id] = above.add(_node(kernel, gained))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE)
    with console.capture() as captured:
        console.print(root)
    text = "".join(line.rstrip() + "\n" for line in captured.get().splitlines())
    sys.stdout.write(text + "\n" + "".join(f"{note}\n" for note in _notes(kernels, gained)))


def _with_ancestors(registry: Registry, kernels: Sequence[Kernel]) -> dict[str, Kernel]:
    wanted: set[str] = set()
    for kernel in kernels:
        each: Kernel | None = kernel
        while each is not None and each.id not in wanted:
            wanted.add(each.id)
            each = registry.kernels.get(each.after or "")
    return {name: kernel for name, kernel in registry.kernels.items() if name in wanted}


def _node(kernel: Kernel, gained: Mapping[str, Sequence[Gain]]) -> Text:
    from rich.text import Text

    found = [f"{times_text(gain)}x {_card(gain)}" for gain in gained.get(kernel.id, ())]
    parts = [(shown(kernel.id), "bold"), *((f"  {text}", "green") for text in found)]
    title = (f"  {shown(kernel.title)}", "dim")
    return Text.assemble(*parts, title, no_wrap=True, overflow="ellipsis")


def _card(gain: Gain) -> str:
    return shown(gain.device.removeprefix("NVIDIA ").split(" ")[0])


def _notes(kernels: Mapping[str, Kernel], gained: Mapping[str, Sequence[Gain]]) -> list[str]:
    """What the numbers are of: each problem and card once."""
    of = {shown(measured_on(gain)) for name in kernels for gain in gained.get(name, ())}
    if not of:
        return ["no run says what steps gained: cudareduce bench all --json run.json, then "
                "cudareduce list --tree --results run.json"]  # fmt: skip
    return ["x: how many times as fast as the step above it; " + "; ".join(sorted(of))]
