"""The folder of compiled libraries.

Each carries a hash of its content behind what the loader reads, so that one that was damaged is
compiled again and never loaded.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cudareduce.errors import EnvironmentProblem

_UNFINISHED = "unfinished-"
#: Seconds after which the folder of a run that was killed is taken for abandoned; no call of the
#: compiler may take so long.
_ABANDONED_S = 600.0
_SEAL = b"cudareduce"
#: Kernels that are kept, some 35 kB each, and what they are called. When there are more, those that
#: were not used for longest go, down to this share.
MOST_KERNELS, KERNEL = 10_000, "kernel-"
_KEPT = 0.75


def _seal(content: bytes) -> bytes:
    return _SEAL + hashlib.sha256(content).digest()


class Cache:
    """Libraries by name in a folder that other processes use at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def find(self, name: str) -> Path | None:
        """The library of this name, if it is there and whole."""
        path = self.folder / name
        try:
            content = path.read_bytes()
        except OSError:
            return None
        end = len(content) - len(_seal(b""))
        if end <= 0 or content[end:] != _seal(content[:end]):
            return None
        try:
            os.utime(path)
        except FileNotFoundError:  # another process has just cleared it away
            return None
        except OSError:  # another user's
            pass
        return path

    @contextmanager
    def making(self, name: str) -> Iterator[Path]:
        """Where to write the library of this name. It is kept when the block ends without an error;
        what lies beside it goes either way. Raises EnvironmentProblem where nothing can be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._clear()
            own = Path(tempfile.mkdtemp(dir=self.folder, prefix=_UNFINISHED))
        except OSError as error:
            raise self._unusable(error) from None
        try:
            made = own / name
            yield made
            try:
                with made.open("r+b") as file:
                    seal = _seal(file.read())
                    file.write(seal)
                made.replace(self.folder / name)
            except OSError as error:
                raise self._unusable(error) from None
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def _clear(self) -> None:
        """Remove what runs that were killed have left, and the oldest of too many kernels."""
        with os.scandir(self.folder) as entries:
            kernels = [entry for entry in entries if entry.name.startswith(KERNEL)]
        if len(kernels) > MOST_KERNELS:
            with suppress(FileNotFoundError):  # another process does the same
                kernels.sort(key=lambda entry: entry.stat().st_mtime)
                for entry in kernels[: -int(_KEPT * MOST_KERNELS)]:
                    Path(entry.path).unlink()
        for left in self.folder.glob(f"{_UNFINISHED}*"):
            try:
                abandoned = time.time() - left.stat().st_mtime > _ABANDONED_S
            except FileNotFoundError:  # another process was quicker
                continue
            if abandoned:
                shutil.rmtree(left, ignore_errors=True)

    def _unusable(self, error: OSError) -> EnvironmentProblem:
        return EnvironmentProblem(
            f"cannot write to {self.folder} ({error.strerror}): make room or allow it, or run with "
            f"--no-cache"
        )
