"""A second tree of kernels to measure against: a folder, or the kernels at a git revision."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.gate.request import BaseRequest, Remeasuring
from cudareduce.gate.rerun import base_choices
from cudareduce.launch.prelude import device_folder
from cudareduce.library.kernel import Kernel, load_kernel
from cudareduce.library.registry import Choice, Registry, kernel_files, kernels_folder
from cudareduce.temporary import temporary_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Two trees of kernels: the folders of this one, what is compared of it, the kernels of the
    base by id, and what of these cannot be read."""

    heads: tuple[Path, ...]
    choices: tuple[Choice, ...]
    base: Mapping[str, Kernel]
    problems: tuple[str, ...]


def heads_of(remeasuring: Remeasuring) -> tuple[Path, ...]:
    """The folders of this tree."""
    return remeasuring.folders or (kernels_folder(),)


@contextmanager
def opened_trees(request: BaseRequest, registry: Registry) -> Iterator[Trees]:
    """Both trees, for as long as a revision lies unpacked. Raises UsageError."""
    heads = heads_of(request.remeasuring)
    choices = base_choices(request.remeasuring.kernels, heads, registry)
    with temporary_folder() as temporary:
        base, problems = base_tree(request.base, heads, Path(temporary))
        yield Trees(heads=heads, choices=tuple(choices), base=base, problems=tuple(problems))


def base_tree(base: str, heads: Sequence[Path], into: Path) -> tuple[dict[str, Kernel], list[str]]:
    """The kernels of a base, by id, with what is put in front of them there, and what is wrong with
    others; a revision is unpacked into `into`. Raises UsageError."""
    folders = base_folders(base, heads, into / "kernels")
    return load_tree(folders, base_prelude(base, into / "prelude"))


def base_folders(base: str, heads: Sequence[Path], into: Path) -> list[Path]:
    """The folders of the base that stand opposite the head's; revisions are unpacked into `into`.

    A head folder that is under no version control has no other revision and is left out. A
    UsageError if none is left, or if git is missing, refuses, or does not know the revision.
    """
    if Path(base).is_dir():
        inner = Path(base, "kernels")
        return [inner if inner.is_dir() else Path(base)]
    found = []
    for number, head in enumerate(heads):
        top = _git(head, "rev-parse", "--show-toplevel")
        if top is None:
            continue
        revision = _git(head, "rev-parse", "--verify", "--quiet", "--end-of-options",
                        f"{base}^{{commit}}")  # fmt: skip
        if revision is None:
            raise UsageError(
                f"--base {base}: neither a folder nor a revision that git knows in {head}; "
                "in CI, fetch the whole history (fetch-depth: 0)"
            )
        inside = head.resolve().relative_to(Path(top).resolve())
        found.append(_unpack(top, revision, inside, into / str(number)))
    if not found:
        raise UsageError(
            f"--base {base}: it is not a folder, and the kernels are not in a git checkout: name a "
            "folder of kernels"
        )
    return found


def base_prelude(base: str, into: Path) -> Path | None:
    """The CUDA C++ that the base puts in front of its kernels; None where it has none of its own,
    as a folder of kernels alone, and this package's serves both trees. A revision's is unpacked
    into `into`, if this package lies in a checkout that knows it."""
    own = device_folder()
    inside = Path("cudareduce", "launch", own.name)
    if Path(base).is_dir():
        near = (Path(base, inside), Path(base).resolve().parent / inside)
        return next((folder for folder in near if folder.is_dir()), None)
    top = _git(own, "rev-parse", "--show-toplevel")
    if top is None or own.resolve() != (Path(top) / inside).resolve():
        return None
    known = _git(own, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}:{inside}")
    return None if known is None else _unpack(top, base, inside, into)


def as_it_was(base: str, folder: Path) -> bool:
    """Whether a folder is what git has of it at a revision. A UsageError if git does not know
    that."""
    return _git(folder, "diff", "--quiet", "--end-of-options", base, "--", ".") is not None


def _unpack(top: str, revision: str, inside: Path, into: Path) -> Path:
    folder = "" if inside == Path() else inside.as_posix()
    command = ["git", "-C", top, "archive", "--format=tar", f"{revision}:{folder}"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise UsageError(f"--base: revision {revision[:12]} has no folder {inside}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        # Filters came with 3.11.4; what git itself has packed needs none.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(into)
    return into


def _git(folder: Path, *words: str) -> str | None:
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"}
        )
    except OSError:
        raise UsageError("--base needs git, which was not found: install it") from None
    said = " ".join(done.stderr.split())
    if done.returncode and said and "not a git repository" not in said:
        raise UsageError(f"--base: git refuses: {said}")  # a checkout of another user, for one
    return done.stdout.strip() if done.returncode == 0 else None


def load_tree(
    folders: Sequence[Path], prelude: Path | None = None
) -> tuple[dict[str, Kernel], list[str]]:
    """The kernels of folders, by id, with their own `prelude`, and what is wrong with others: a
    base may be written in words that are no longer known. Lineages are not looked at: it may be one
    file. No kernel at all is a UsageError."""
    kernels: dict[str, Kernel] = {}
    problems: list[str] = []
    for folder in folders:
        for path in kernel_files(folder):
            family = path.parent.name if path.parent != folder else folder.name
            try:
                kernel = load_kernel(path, family)
            except UsageError as error:
                problems.append(f"the base has a kernel that cannot be read, left out: {error}")
                continue
            kernels[kernel.id] = replace(kernel, prelude=prelude)
    if not kernels:
        names = ", ".join(str(folder) for folder in folders)
        raise UsageError("; ".join([f"--base: there are no kernels in {names}", *problems]))
    return kernels, problems
