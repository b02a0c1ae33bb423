"""What the user says of a file without a header, where the file's own signs are not to count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cudareduce.library.arguments import Argument, read_argument
from cudareduce.library.header import Finish, GridRule
from cudareduce.library.own_launch import Said
from cudareduce.library.undefined import read_definition
from cudareduce.reduction.operators import Map


@dataclass(frozen=True, slots=True)
class Guesses:
    """What the user says of a file: the `entries` that are its kernels, `chains` of
    them with commas, `block` threads, `items`
    elements a thread, `grid` blocks or a rule for their number, `shared` bytes of dynamic shared
    memory a block, `map` what it makes of elements, `arguments` what its parameters get,
    `headers` folders with headers besides those near it, `defined` names with what they stand for
    in it. None leaves it to the file's own signs."""

    entries: tuple[str, ...] = ()
    chains: tuple[str, ...] = ()
    block: int | None = None
    items: int | None = None
    grid: int | GridRule | None = None
    finish: Finish | None = None
    shared: int | None = None
    map: Map | None = None
    arguments: tuple[Argument, ...] = ()
    headers: tuple[Path, ...] = ()
    defined: tuple[tuple[str, str], ...] = ()

    @property
    def launch(self) -> Said:
        """What of it is said of a launch."""
        return Said(
            block=self.block, items=self.items, grid=self.grid, exactly=True, shared=self.shared
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """What the command line says of files without a header, besides a launch shape: as it was
    typed."""

    entry: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()
    grid: int | GridRule | None = None
    shared: int | None = None
    finish: Finish | None = None
    arg: tuple[str, ...] = ()
    headers: tuple[Path, ...] = ()
    define: tuple[str, ...] = ()

    def guesses(
        self, block: int | None = None, items: int | None = None, map: Map | None = None
    ) -> Guesses:
        """All of it, with what is said besides. One that says nothing is a UsageError."""
        return Guesses(
            entries=self.entry, chains=self.chain, block=block, items=items, grid=self.grid,
            finish=self.finish, shared=self.shared, map=map,
            arguments=tuple(read_argument(text) for text in self.arg), headers=self.headers,
            defined=tuple(read_definition(text) for text in self.define),
        )  # fmt: skip
