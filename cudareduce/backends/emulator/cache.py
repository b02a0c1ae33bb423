"""A folder of compiled libraries, shared by processes.

A hash of the content is appended to each library, after the part that the loader reads. A damaged
library is compiled again and never loaded.
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
#: Age in seconds at which the folder of a killed run is removed; no compilation takes so long.
_ABANDONED_S = 600.0
_SEAL = b"cudareduce"
#: The cache holds at most this many kernels, about 35 kB each; their names begin with KERNEL. Above
#: the limit, the least recently used are removed until this fraction of the limit is left.
MOST_KERNELS, KERNEL = 10_000, "kernel-"
_KEPT_FRACTION = 0.75


def _seal(content: bytes) -> bytes:
    return _SEAL + hashlib.sha256(content).digest()


class Cache:
    """Libraries by name in a folder that other processes may use at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def find(self, name: str) -> Path | None:
        """The library of this name, None if it is missing or damaged."""
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
        except FileNotFoundError:  # removed by another process
            return None
        except OSError:  # owned by another user
            pass
        return path

    @contextmanager
    def create(self, name: str) -> Iterator[Path]:
        """Context manager that adds the library `name` to the cache. It yields a path in a
        temporary folder, to which the caller writes the library. An exception discards the file.
        Raises EnvironmentProblem if the folder is not writable."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._clear()
            temporary = Path(tempfile.mkdtemp(dir=self.folder, prefix=_UNFINISHED))
        except OSError as error:
            raise self._unusable(error) from None
        try:
            path = temporary / name
            yield path
            try:
                with path.open("r+b") as file:
                    seal = _seal(file.read())
                    file.write(seal)
                path.replace(self.folder / name)
            except OSError as error:
                raise self._unusable(error) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _clear(self) -> None:
        """Remove temporary folders of killed runs, and the least recently used kernels if there
        are more than MOST_KERNELS."""
        with os.scandir(self.folder) as entries:
            kernels = [entry for entry in entries if entry.name.startswith(KERNEL)]
        if len(kernels) > MOST_KERNELS:
            with suppress(FileNotFoundError):  # removed by another process
                kernels.sort(key=lambda entry: entry.stat().st_mtime)
                for entry in kernels[: -int(_KEPT_FRACTION * MOST_KERNELS)]:
                    Path(entry.path).unlink()
        for temporary in self.folder.glob(f"{_UNFINISHED}*"):
            try:
                abandoned = time.time() - temporary.stat().st_mtime > _ABANDONED_S
            except FileNotFoundError:  # removed by another process
                continue
            if abandoned:
                shutil.rmtree(temporary, ignore_errors=True)

    def _unusable(self, error: OSError) -> EnvironmentProblem:
        return EnvironmentProblem(
            f"cannot write to {self.folder} ({error.strerror}): free space, allow writing, or run "
            f"with --no-cache"
        )
