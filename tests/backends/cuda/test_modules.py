"""What nvcc makes, and what the driver loads of it: on a compiler and a driver that are none."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cudareduce.backends.cuda.cuda import CudaBackend
from cudareduce.backends.cuda.modules import Modules
from cudareduce.backends.protocol import Program, Source
from cudareduce.errors import BuildError, EnvironmentProblem


class DriverError(Exception):
    pass


class CompileError(DriverError):
    def __init__(self, message: str, stderr: str | bytes | None) -> None:
        super().__init__(message)
        self.stderr = stderr


class Module:
    """A loaded module."""

    def __init__(self, cubin: bytes) -> None:
        if cubin == b"cubin of refused":
            raise DriverError("an illegal instruction")

    def get_function(self, entry: str) -> str:
        return f"function {entry}"

    def get_global(self, name: str) -> tuple[str, int]:
        return f"address of {name}", 8


class Cuda:
    """A driver, a device of compute capability 9.0 and PyCUDA's compiler, which write down what
    they are asked; `fails` is what the compiler raises."""

    Error, CompileError = DriverError, CompileError

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.options: list[dict[str, Any]] = []
        self.fails: dict[str, Exception] = {}

    def compute_capability(self) -> tuple[int, int]:
        return 9, 0

    def module_from_buffer(self, cubin: bytes) -> Module:
        self.log.append(("loaded", cubin))
        return Module(cubin)

    def memcpy_htod(self, address: str, value: Any) -> None:
        self.log.append(("copied", address, value.dtype.name, *map(int, value)))

    def compile(self, text: str, **options: Any) -> bytes:
        self.log.append(("compiled", text))
        self.options.append(options)
        if text in self.fails:
            raise self.fails[text]
        return f"cubin of {text}".encode()


class SourceModule:
    """PyCUDA's, as far as it goes without a text."""

    module: Module

    def _bind_module(self) -> None:
        self.get_function, self.get_global = self.module.get_function, self.module.get_global


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """In the place where PyCUDA would be imported from, with an nvcc of a PyPI package."""
    made = Cuda()
    pycuda, compiler = ModuleType("pycuda"), ModuleType("pycuda.compiler")
    vars(compiler).update(compile=made.compile, SourceModule=SourceModule)
    vars(pycuda).update(compiler=compiler)
    for module in (pycuda, compiler):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    found = [("/site-packages/nvidia/cu13/bin/nvcc", "13.0.88")]
    monkeypatch.setattr("cudareduce.backends.cuda.modules.installed", lambda tool: iter(found))
    return made


def source(text: str, entry: str = "kernel_a") -> Source:
    return Source(text, entry, Path(f"{entry}.cu"))


def loaded(program: Program | BuildError | None) -> Any:
    assert not isinstance(program, BuildError), program
    return program


def test_building_without_nvcc_is_an_environment_error(
    tmp_path: Path, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cudareduce.backends.cuda.modules.installed", lambda tool: iter(()))
    modules = Modules(cuda, cuda, cache=tmp_path)
    assert modules.nvcc_release is None
    with pytest.raises(EnvironmentProblem, match="nvcc was not found: install the CUDA toolkit"):
        modules.build([source("text")])


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        ("\nmine.cu(3): error\n\n" + "more\n" * 20, "mine.cu(3): error" + "\nmore" * 9),
        (
            b"fatal error: mine.h: No such file or directory\n",
            "fatal error: mine.h: No such file or directory",
        ),
        ("", "nvcc failed"),
        (None, "nvcc failed"),
    ],
)
def test_errors_of_nvcc_are_cut_to_ten_lines(
    tmp_path: Path, cuda: Cuda, stderr: str | bytes | None, said: str
) -> None:
    cuda.fails["text"] = CompileError("nvcc failed", stderr)
    [error] = Modules(cuda, cuda, cache=tmp_path).build([source("text")])
    assert isinstance(error, BuildError)
    assert str(error) == said
    assert cuda.log == [("compiled", "text")]


def test_results_come_in_the_order_of_the_sources(tmp_path: Path, cuda: Cuda) -> None:
    calls: list[None] = []
    cuda.fails["second"] = CompileError("nvcc failed", "second.cu(1): error")
    sources = [source(text, f"kernel_{text}") for text in ("first", "second", "third", "refused")]
    first, second, third, refused = Modules(cuda, cuda, cache=tmp_path).build(
        sources, lambda: calls.append(None)
    )
    assert (loaded(first).entry, loaded(third).entry) == ("kernel_first", "kernel_third")
    assert loaded(first).function == "function kernel_first"
    assert loaded(first).binary_sha == hashlib.sha256(b"cubin of first").hexdigest()
    assert isinstance(second, BuildError) and str(second) == "second.cu(1): error"
    assert isinstance(refused, BuildError)
    assert str(refused) == (
        "kernel_refused.cu: the driver does not load kernel_refused: an illegal instruction"
    )
    assert len(calls) == 4


def test_a_compiled_text_is_loaded_again_without_compiling(tmp_path: Path, cuda: Cuda) -> None:
    """In another context, say: each time it is a module of its own."""
    modules = Modules(cuda, cuda, cache=tmp_path)
    one, other = (loaded(modules.build([source("text")])[0]) for _ in range(2))
    assert cuda.log == [("compiled", "text"), *2 * [("loaded", b"cubin of text")]]
    assert one is not other
    assert one.binary_sha == other.binary_sha


def test_how_nvcc_is_called(tmp_path: Path, cuda: Cuda) -> None:
    modules = Modules(cuda, cuda, cache=tmp_path)
    modules.build([source("text")])
    assert modules.nvcc_release == "13.0"
    assert cuda.options == [{
        "nvcc": "/site-packages/nvidia/cu13/bin/nvcc",
        "options": ["-std=c++17", "-O3"], "no_extern_c": True, "arch": "sm_90",
        "cache_dir": str(tmp_path / "cubin"),
    }]  # fmt: skip


def test_without_a_cache_nothing_is_left(cuda: Cuda) -> None:
    modules = Modules(cuda, cuda, cache=None)
    modules.build([source("text")])
    [folder] = {options["cache_dir"] for options in cuda.options}
    assert Path(folder).is_dir()
    modules.close()
    assert not Path(folder).exists()


def test_a_cached_cubin_that_does_not_load_is_compiled_again(
    tmp_path: Path, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = Modules(cuda, cuda, cache=tmp_path)
    (tmp_path / "cubin" / "kept").write_text("damaged")
    whole = cuda.module_from_buffer

    def damaged(cubin: bytes) -> Module:
        if (tmp_path / "cubin" / "kept").exists():
            raise DriverError("device kernel image is invalid")
        return whole(cubin)

    monkeypatch.setattr(cuda, "module_from_buffer", damaged)
    [program] = modules.build([source("text")])
    assert loaded(program).entry == "kernel_a"


def test_a_damaged_cubin_is_gone_before_the_driver_sees_it(tmp_path: Path, cuda: Cuda) -> None:
    modules = Modules(cuda, cuda, cache=tmp_path)
    kept = [tmp_path / "cubin" / f"{name}.cubin" for name in ("whole", "cut", "foreign")]
    for path in kept[:2]:
        path.write_bytes(b"machine code")
    modules.build([source("text")])
    kept[1].write_bytes(b"machine")
    kept[2].write_bytes(b"of another hand")
    Modules(cuda, cuda, cache=tmp_path)
    assert [path.exists() for path in kept] == [True, False, False]


def test_constants_are_of_64_bits(tmp_path: Path, cuda: Cuda) -> None:
    [program] = Modules(cuda, cuda, cache=tmp_path).build([source("text")])
    loaded(program).set_constant("COUNT", 2**40 + 5)
    assert cuda.log[-1] == ("copied", "address of COUNT", "uint64", 2**40 + 5)
    loaded(program).set_constant("WINDOW", 2**63, 7)
    assert list(cuda.log[-1]) == ["copied", "address of WINDOW", "uint64", 2**63, 7]


@pytest.mark.parametrize("quick", [False, True])
def test_a_gpu_has_no_named_schedules(quick: bool) -> None:
    assert list(CudaBackend.schedules(10, quick=quick)) == [""] * 10
