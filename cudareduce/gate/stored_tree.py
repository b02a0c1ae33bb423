"""The kernels that a stored run measured, where git still has them: what looks slower is measured
beside them, so that nothing but the change stands between the two sides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.gate.trees import base_tree
from cudareduce.library.kernel import Kernel
from cudareduce.machine.device import DeviceInfo
from cudareduce.results.record import Run

#: A revision as `git describe` gives it. A file names it, so nothing else is given to git.
_REVISION = re.compile(r"\w[\w.-]{3,99}")
#: What else makes machine code of a text, or runs it: where one differs, a change of the texts
#: alone is not what the baseline shows.
_MADE_BY = ("name", "nvcc", "cuda", "driver")


def stored_tree(
    stored: Run, now: DeviceInfo, heads: Sequence[Path], into: Path
) -> Mapping[str, Kernel]:
    """By id, those kernels of the revision of a stored run whose text is the one that it measured;
    none where git does not have it, or the machine makes other code by now. Unpacks into `into`."""
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
    """The revision that a stored run names; None where it names none, or the machine makes other
    code by now."""
    said = stored.tool.get("git")
    revision = said.removesuffix("-dirty") if isinstance(said, str) else ""
    same = all(getattr(stored.device, name) == getattr(now, name) for name in _MADE_BY)
    known = same and _REVISION.fullmatch(revision) and not Path(revision).exists()
    return revision if known else None
