"""The GPU as a stopwatch: events, the read that displaces the cache, and probes beside a run."""

from __future__ import annotations

from functools import cached_property
from importlib.resources import files
from pathlib import Path

from cudareduce.backend import Buffer, BuildError, Launch, Program, Source
from cudareduce.cuda import CudaBackend

#: Bytes read to displace the L2: four times an H200's 60 MiB would do; 512 MiB also gives the host
#: some 110 us to enqueue what is measured (measured on an H200, 4.7 TB/s).
FLUSH_BYTES = 512 * 2**20
_FLUSH_SHAPE = ("read_4", 512, 4)
#: Read-only launch shapes tried for the ceiling: probe, threads, blocks per SM (0: a block a tile).
#: The best of 44 on an H200: the first at 2^25 float32 (4211 GB/s), the second at 2^28 (4643 GB/s).
_READ_SHAPES = (("read_2", 512, 0), ("read_8", 256, 0), ("read_4", 512, 4))


class CudaTimer:
    """What `measure` needs of a GPU; its flush buffer lives as long as it does."""

    def __init__(self, backend: CudaBackend) -> None:
        self._backend = backend
        self.mark, self.reached = backend.mark, backend.reached
        self.elapsed_us, self.synchronize = backend.elapsed_us, backend.synchronize

    @cached_property
    def displace(self) -> Launch:
        """Enqueue a read of far more than the L2 holds: no input stays, and no line is dirty."""
        l2_bytes = self._backend.info().l2_bytes or 0
        self._flush: Buffer = self._backend.allocate(max(FLUSH_BYTES, 4 * l2_bytes))
        return self._reader(*_FLUSH_SHAPE, self._flush)

    def empty(self) -> Launch:
        """A launch of an empty kernel, which shows what a launch costs."""
        return self._backend.launcher(self._probes["empty_kernel"], 1, 32, [])

    def readers(self, buffer: Buffer) -> dict[str, Launch]:
        """Launches that only read a buffer, in several shapes; the fastest is the ceiling."""
        return {
            f"{name} x {threads} x {per_sm or 'tile'}": self._reader(name, threads, per_sm, buffer)
            for name, threads, per_sm in _READ_SHAPES
        }

    def _reader(self, name: str, threads: int, per_sm: int, buffer: Buffer) -> Launch:
        words = buffer.nbytes // 16
        tiles = max(1, -(-words // (threads * int(name.removeprefix("read_")))))
        grid = min(tiles, self._backend.limits().sm_count * per_sm) if per_sm else tiles
        return self._backend.launcher(self._probes[name], grid, threads, [buffer, 0, words])

    @cached_property
    def _probes(self) -> dict[str, Program]:
        path = Path(str(files("cudareduce") / "device" / "probes.cu"))
        text = path.read_text(encoding="utf-8")
        names = ("empty_kernel", "read_2", "read_4", "read_8")
        built = self._backend.build([Source(text, name, path) for name in names])
        programs: dict[str, Program] = {}
        for program in built:
            if isinstance(program, BuildError):
                raise program
            programs[program.entry] = program
        return programs
