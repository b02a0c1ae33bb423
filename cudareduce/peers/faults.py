"""What an error inside a library says of it, as a verdict: what the machine lacks is a skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cudareduce.errors import OutOfMemory
from cudareduce.peers.contract import AbsentError, AnswersError, Peer
from cudareduce.verify.verdict import Verdict, skipped

#: What libraries say in their own words, and what that means.
_SAID = (
    (("no kernel image", "nokernelimage", "no binary for gpu"),
     "has no code for this GPU's architecture"),
    (("out of memory", "outofmemory", "alloc_failed"), "found no memory on the GPU for its own"),
    (("driver version is insufficient", "driver is too old"), "wants a newer driver"),
)  # fmt: skip
_LONGEST = 160


def absent(peer: Peer, error: Exception) -> Verdict:
    """The verdict on a library that cannot be imported, or is too old."""
    if isinstance(error, AbsentError):
        return skipped("machine", f"{error}: {peer.upgrade}")
    name = getattr(error, "name", None)
    if isinstance(error, ModuleNotFoundError) and name:
        return skipped("machine", f"not installed: {peer.install}")
    return not_imported(peer, line(error))


def not_imported(peer: Peer, how: str) -> Verdict:
    """The verdict on a library whose import fails so."""
    return skipped("machine", f"cannot be imported ({how}): {peer.upgrade}")


def faulty(peer: Peer, error: Exception) -> Verdict:
    """The verdict on a library that raises an error when it is prepared or called, or on what it
    gives for answers."""
    text = line(error)
    if isinstance(error, AnswersError):
        return Verdict("fail", str(error))
    if isinstance(error, AbsentError | ImportError):
        return absent(peer, error)
    if isinstance(error, MemoryError) and "out of memory" not in text.lower():
        return skipped("machine", f"found no memory on the host for its own ({text})")
    if isinstance(error, OutOfMemory | MemoryError):
        return skipped("machine", f"found no memory on the GPU for its own ({text})")
    for words, meaning in _SAID:
        if any(word in text.lower() for word in words):
            advice = f": {peer.upgrade}" if "architecture" in meaning else ""
            return skipped("machine", f"{meaning} ({text}){advice}")
    return skipped("machine", f"raises {text}")  # no answer is no wrong one


def line(error: Exception) -> str:
    """The kind of an error and its first line."""
    lines = _message(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _message(error: Exception) -> str:
    """What it says, which code of the library makes up."""
    try:
        return str(error)
    except Exception:
        return ""


class Runtimes:
    """Which library brought a CUDA runtime besides those that its process had: `told` says so of
    each by its name."""

    def __init__(self) -> None:
        self._held = runtimes()
        self.told: dict[str, str] = {}

    def after(self, peer: Peer) -> None:
        """A library has been imported."""
        now = runtimes()
        new = [name for name in now if name not in self._held]
        if new and self._held:
            self.told[peer.name] = (
                f"brought {', '.join(new)} into a process that had {', '.join(self._held)}: name "
                "it alone with --peers where its figures look odd"
            )
        self._held = now


def runtimes() -> list[str]:
    """The CUDA runtimes that this process has loaded, by their files' names."""
    return sorted(set(_mapped("libcudart")))


def _mapped(name: str) -> Iterator[str]:
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        path = line.partition("/")[2]
        file = path.rpartition("/")[2]
        if file.startswith(name):
            yield file
