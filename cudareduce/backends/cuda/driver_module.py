"""CUDA modules loaded through the driver library, for launches that PyCUDA does not support.

These are cooperative launches, and kernels of external programs, which have mangled C++ names and
arguments of any type.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Sequence
from typing import Any

from cudareduce.backends.cuda.driver import DEFAULT_SHARED, explained, why_refused
from cudareduce.backends.protocol import KernelCall, Launch, Source
from cudareduce.errors import KernelFault, TooManyBlocks
from cudareduce.reduction.sizes import counted

#: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
_MAX_DYNAMIC_SHARED = 8
#: In the symbol table of a cubin: the type of functions, and the flag of kernels.
_FUNCTION, _ENTRY = 2, 0x10
_SYMBOLS, _SYMBOL_BYTES = 2, 24
#: The names of anonymous namespaces in demangled symbols.
_UNNAMED = re.compile(r"(?:\(anonymous namespace\)|_GLOBAL__N_\w*|_INTERNAL_\w*)::|<unnamed>::")


def nvcc_text(source: Source) -> str:
    """The source text for nvcc. For an external program, explicit instantiations of its template
    kernels are appended."""
    if not source.kernels:
        return source.text
    used = (
        f"static auto *const cudareduce_kernel_{k} = &{name};\n"
        for k, name in enumerate(source.kernels)
    )
    return f'{source.text}\n#line 1 "<kernels>"\n{"".join(used)}'


def kernel_symbols(cubin: bytes) -> list[str]:
    """The mangled names of the kernels in a cubin, from its symbol table (elf(5))."""
    (sections,) = struct.unpack_from("=Q", cubin, 40)
    size, count = struct.unpack_from("=HH", cubin, 58)
    headers = [struct.unpack_from("=IIQQQQIIQQ", cubin, sections + k * size) for k in range(count)]
    names: list[str] = []
    for header in headers:
        if header[1] != _SYMBOLS:
            continue
        strings = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], _SYMBOL_BYTES):
            name, info, other = struct.unpack_from("=IBB", cubin, at)
            if info & 0xF == _FUNCTION and other & _ENTRY:
                start = strings + name
                names.append(cubin[start : cubin.index(b"\0", start)].decode())
    return names


def demangled(symbol: str) -> str:
    """The C++ name of a function without its return type and parameters."""
    demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    found = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not found:
        return symbol
    name = ctypes.string_at(found).decode()
    ctypes.CDLL(None).free(ctypes.c_void_p(found))
    return _plain(name)


def _plain(name: str) -> str:
    """A C++ name without anonymous namespaces, spaces, return type and parameters."""
    name = _UNNAMED.sub("", name)
    depth = 0
    for at, sign in enumerate(name):
        depth += (sign == "<") - (sign == ">")
        if sign == "(" and depth == 0:
            name = name[:at]
            break
        if sign == " " and depth == 0:
            return _plain(name[at + 1 :])
    return name.replace(" ", "")


def symbol_of(kernel: str, symbols: Sequence[str]) -> str | None:
    """The mangled name of the kernel with this C++ name; None unless exactly one matches."""
    wanted, names = _plain(kernel), {symbol: demangled(symbol) for symbol in symbols}
    base = wanted.partition("<")[0].rpartition("::")[2]
    exact = [s for s, name in names.items() if name == wanted]
    ends = [s for s, name in names.items() if name.endswith(f"::{wanted}")]
    same = [s for s, name in names.items() if name.partition("<")[0].rpartition("::")[2] == base]
    return next((found[0] for found in (exact, ends, same) if len(found) == 1), None)


class DriverModule:
    """A loaded CUDA module, with its variables and the kernels of the given mangled names. Raises
    KernelFault if the driver cannot load it."""

    def __init__(self, library: Any, cubin: bytes, symbols: Sequence[str]) -> None:
        self._library, self._module = library, ctypes.c_void_p()
        #: The initial bytes of variables, by index, saved when first requested.
        self.initial: dict[int, bytes] = {}
        self._call("cuModuleLoadData", ctypes.byref(self._module), cubin)
        self._functions = [ctypes.c_void_p() for _ in symbols]
        for function, symbol in zip(self._functions, symbols, strict=True):
            name = symbol.encode()
            self._call("cuModuleGetFunction", ctypes.byref(function), self._module, name)

    def _call(self, name: str, *arguments: Any) -> None:
        why = why_refused(self._library, name, *arguments)
        if why:
            raise KernelFault(why)

    def variable(self, name: str) -> tuple[int, int]:
        """The address and size in bytes of a variable."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._call(
            "cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), self._module,
            name.encode(),
        )  # fmt: skip
        return address.value, size.value

    def launcher(self, call: KernelCall, stream: int, sm_count: int) -> Launch:
        """A function that launches the kernel. Raises TooManyBlocks if the grid of a cooperative
        launch exceeds the blocks that `sm_count` multiprocessors can hold."""
        function = self._functions[call.kernel]
        if call.shared > DEFAULT_SHARED:
            self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, call.shared)
        if call.cooperative:
            self._check_grid(call, function, sm_count)
        held = [
            ctypes.c_uint64(argument) if isinstance(argument, int)
            else ctypes.create_string_buffer(argument, len(argument))
            for argument in call.arguments
        ]  # fmt: skip
        places = (ctypes.c_void_p * max(1, len(held)))(*map(ctypes.addressof, held))
        shape = *call.grid, *call.block, call.shared, ctypes.c_void_p(stream), places
        name = "cuLaunchCooperativeKernel" if call.cooperative else "cuLaunchKernel"
        launch_kernel, extra = getattr(self._library, name), () if call.cooperative else (None,)

        def launch() -> None:
            _ = held  # keeps the arguments alive, which the driver reads at each launch
            code = launch_kernel(function, *shape, *extra)
            if code:
                why = explained(self._library, code)
                raise KernelFault(f"the driver refuses {name} ({why})")

        return launch

    def _check_grid(self, call: KernelCall, function: ctypes.c_void_p, sm_count: int) -> None:
        threads = call.block[0] * call.block[1] * call.block[2]
        blocks = call.grid[0] * call.grid[1] * call.grid[2]
        per_sm = ctypes.c_int()
        self._call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(per_sm), function, threads,
            ctypes.c_size_t(call.shared),
        )  # fmt: skip
        if blocks > per_sm.value * sm_count:
            raise TooManyBlocks(
                f"it waits for its whole grid, and of its {counted(blocks, 'block')} of {threads} "
                f"threads this GPU holds {per_sm.value * sm_count} at one time: launch fewer, with "
                "--grid or with fixed_grid in its front matter"
            )


def external_module(library: Any, cubin: bytes, source: Source) -> DriverModule:
    """Load the module of an external program, with kernels in the order of `source.kernels`. Raises
    KernelFault if the cubin lacks one of them."""
    symbols = kernel_symbols(cubin)
    found = [symbol_of(kernel, symbols) for kernel in source.kernels]
    for kernel, symbol in zip(source.kernels, found, strict=True):
        if symbol is None:
            raise KernelFault(f"{source.path}: nvcc made no kernel {kernel}")
    return DriverModule(library, cubin, [symbol for symbol in found if symbol is not None])
