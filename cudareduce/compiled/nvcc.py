"""nvcc without a GPU: machine code for any architecture, and what the assembler says of it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from cudareduce.backend import Source
from cudareduce.errors import BuildError, EnvironmentProblem
from cudareduce.machine.host import installed
from cudareduce.problem.parsing import NVCC_FLAGS, in_standard
from cudareduce.temporary import temporary_folder


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code, the PTX it came from, and the compiler's own words (with ptxas -v)."""

    cubin: bytes
    ptx: str
    said: str


@dataclass(frozen=True, slots=True)
class Nvcc:
    """A compiler: the exact version decides what comes out."""

    path: str
    version: str

    def compile(self, source: Source, arch: int) -> Compiled | BuildError:
        """Compile one translation unit for sm_`arch`; what does not compile is returned, not
        raised."""
        with temporary_folder() as folder:
            Path(folder, "kernel.cu").write_text(source.text, encoding="utf-8")
            command = [
                self.path, *in_standard(NVCC_FLAGS, source.text), "-cubin", f"-arch=sm_{arch}",
                "-Xptxas", "-v", "-keep", "-keep-dir", folder, "-o", f"{folder}/kernel.cubin",
                f"{folder}/kernel.cu",
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
            said = (done.stdout + done.stderr).replace(f"{folder}/", "")
            if done.returncode:
                lines = [line for line in said.splitlines() if line.strip()]
                return BuildError("\n".join(lines) or f"nvcc exits with {done.returncode}")
            cubin, ptx = Path(folder, "kernel.cubin"), Path(folder, "kernel.ptx")
            return Compiled(cubin.read_bytes(), ptx.read_text(encoding="utf-8"), said)


def find_nvcc(wanted: str | None = None) -> Nvcc:
    """The nvcc of the version wanted, else the first there is; none is an EnvironmentProblem."""
    found = [Nvcc(path, version) for path, version in installed("nvcc")]
    if not found:
        raise EnvironmentProblem(
            "nvcc was not found: install the CUDA toolkit and put its bin folder on the PATH, or "
            "pip install 'cudareduce[compile]'"
        )
    return next((nvcc for nvcc in found if nvcc.version == wanted), found[0])
