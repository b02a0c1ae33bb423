"""The kernels of a base: a folder, a git revision, or the revision that a stored run names."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from cudareduce.backends.selection import default_cache
from cudareduce.catalog.front_matter import SOURCES
from cudareduce.catalog.kernel import Kernel, load_kernel
from cudareduce.catalog.registry import Choice, Registry, kernel_files, load_registry
from cudareduce.compare.request import CheckRequest
from cudareduce.errors import UsageError
from cudareduce.external.files import ExternalFiles
from cudareduce.external.options import LaunchOptions, Requested
from cudareduce.launch.prelude import device_folder
from cudareduce.machine import DeviceInfo
from cudareduce.progress import say
from cudareduce.results.record import Run
from cudareduce.temporary import temporary_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Two trees of kernels: the choices of this one, the kernels of the base by id, and the
    problems with unreadable ones."""

    choices: tuple[Choice, ...]
    base: Mapping[str, Kernel]
    problems: tuple[str, ...]


@contextmanager
def open_trees(request: CheckRequest, registry: Registry) -> Iterator[Trees]:
    """Load the kernels of both trees. A git revision stays unpacked within the context. Raises
    UsageError."""
    choices = head_choices(request, request.kernels, registry)
    with temporary_folder() as temporary:
        files = [Path(name) for name in request.kernels if name.endswith(SOURCES)]
        base, problems = base_files(request, files, Path(temporary, "files"))
        if not files or len(files) < len(request.kernels):
            kernels, more = base_tree(str(request.base), request.heads, Path(temporary))
            base, problems = kernels | base, [*problems, *more]
        yield Trees(choices=tuple(choices), base=base, problems=tuple(problems))


def head_choices(request: CheckRequest, names: Sequence[str], registry: Registry) -> list[Choice]:
    """The named kernels of this tree, or all of them without names."""
    choices = registry.choose(names, external_files(request))
    if names:
        return choices
    heads = [head.resolve() for head in request.heads]
    return [c for c in choices if any(c.kernel.path.resolve().is_relative_to(h) for h in heads)]


def external_files(request: CheckRequest) -> ExternalFiles | None:
    """The loader of external kernel files; None for --compile, which needs front matter."""
    if request.compiling:
        return None
    shapes = tuple((n, request.rows or 1) for n in request.n or ())
    cache = None if request.no_cache else default_cache()
    tell = partial(say, quiet=request.quiet)
    requested = Requested(dtype=request.dtype or ())
    return ExternalFiles(LaunchOptions(), tell, shapes, cache, requested)


def base_files(
    request: CheckRequest, files: Sequence[Path], into: Path
) -> tuple[dict[str, Kernel], list[str]]:
    """The kernels of single files as the base has them, by id, and the files that it lacks.
    Revisions are unpacked into `into`. Raises UsageError."""
    base, kernels, problems = str(request.base), dict[str, Kernel](), list[str]()
    for number, file in enumerate(files):
        folder = Path(base)
        if not folder.is_dir():
            [folder] = base_folders(base, [file.resolve().parent], into / str(number))
        names = (file, file.name) if Path(base).is_dir() else (file.name,)
        found = [p for p in (folder / name for name in names) if p.is_file()]
        path = next((p for p in found if p.resolve() != file.resolve()), None)
        if path is None:
            problems.append(f"{base} has no {file}")
            continue
        for choice in load_registry(()).choose([str(path)], external_files(request)):
            kernels[choice.kernel.id] = choice.kernel
    return kernels, problems


def base_tree(base: str, heads: Sequence[Path], into: Path) -> tuple[dict[str, Kernel], list[str]]:
    """The kernels of a base by id, with its own prelude, and the problems with unreadable ones: an
    old base may use front matter that is no longer known. A revision is unpacked into `into`.
    Raises UsageError if there are no kernels."""
    folders = base_folders(base, heads, into / "kernels")
    prelude = _base_prelude(base, into / "prelude")
    kernels: dict[str, Kernel] = {}
    problems: list[str] = []
    for folder in folders:
        for path in kernel_files(folder):
            family = path.parent.name if path.parent != folder else folder.name
            try:
                kernel = load_kernel(path, family)
            except UsageError as error:
                problems.append(f"left out an unreadable kernel of the base: {error}")
                continue
            kernels[kernel.id] = replace(kernel, prelude=prelude)
    if not kernels:
        names = ", ".join(str(folder) for folder in folders)
        raise UsageError("; ".join([f"--base: there are no kernels in {names}", *problems]))
    return kernels, problems


def base_folders(base: str, heads: Sequence[Path], into: Path) -> list[Path]:
    """The folders of the base that correspond to the head's; revisions are unpacked into `into`. A
    head folder without version control is skipped. Raises UsageError if none is left, or if git is
    missing, refuses or does not know the revision."""
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
            f"--base {base}: it is not a folder, and {heads[0]} is not in a git checkout: name a "
            "folder of kernels, or your checkout's with --kernels"
        )
    return found


def _base_prelude(base: str, into: Path) -> Path | None:
    """The prelude of the base; None if it has none, so that this package's serves both trees. That
    of a revision is unpacked into `into`, if this package is in a checkout that has it."""
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


def is_unchanged(base: str, folder: Path) -> bool:
    """Whether a folder is unchanged since a revision. Raises UsageError if git does not know it."""
    return _git(folder, "diff", "--quiet", "--end-of-options", base, "--", ".") is not None


def _unpack(top: str, revision: str, inside: Path, into: Path) -> Path:
    folder = "" if inside == Path() else inside.as_posix()
    command = ["git", "-C", top, "archive", "--format=tar", f"{revision}:{folder}"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise UsageError(f"--base: revision {revision[:12]} has no folder {inside}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        # Filters need Python 3.11.4; an archive of git itself needs none.
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
    message = " ".join(done.stderr.split())
    if done.returncode and message and "not a git repository" not in message:
        raise UsageError(f"--base: git refuses: {message}")  # a checkout of another user, for one
    return done.stdout.strip() if done.returncode == 0 else None


#: A revision as `git describe` prints it. It comes from a file, so nothing else is passed to git.
_REVISION = re.compile(r"\w[\w.-]{3,99}")
#: What else affects machine code and its time: if one differs, kernel text is not the only change.
_MADE_BY = ("name", "nvcc", "cuda", "driver")


def stored_tree(
    stored: Run, now: DeviceInfo, heads: Sequence[Path], into: Path
) -> Mapping[str, Kernel]:
    """The kernels at the revision of a stored run whose text is the measured one; none if git does
    not have it, or this machine compiles differently. Unpacks into `into`."""
    revision = revision_of(stored, now)
    if revision is None:
        return {}
    try:
        kernels, _ = base_tree(revision, heads, into)
    except UsageError:
        return {}
    texts = {record.kernel: record.source_sha for record in stored.records}
    return {name: kernel for name, kernel in kernels.items() if kernel.sha == texts.get(name)}


def revision_of(stored: Run, now: DeviceInfo) -> str | None:
    """The git revision of a stored run; None if it has none, or if this machine's compiler or
    driver differs."""
    git = stored.tool.get("git")
    revision = git.removesuffix("-dirty") if isinstance(git, str) else ""
    same = all(getattr(stored.device, name) == getattr(now, name) for name in _MADE_BY)
    known = same and _REVISION.fullmatch(revision) and not Path(revision).exists()
    return revision if known else None
