"""Kernels of an external program on the GPU: found by their C++ names, launched as recorded.

PyCUDA launches no cooperative kernel and takes arguments by type, so this calls the driver itself.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Sequence
from typing import Any

from cudareduce.backend import KernelCall, Launch, Source
from cudareduce.errors import KernelFault, TooManyBlocks
from cudareduce.gpu.driver import explained
from cudareduce.reduction.sizes import counted

#: Bytes of dynamic shared memory that a block has without asking, and the attribute that asks.
_UNASKED, _MAX_DYNAMIC_SHARED = 48 * 1024, 8
#: Of a symbol in an ELF file for a GPU: a function, and one that the host can launch.
_FUNCTION, _ENTRY = 2, 0x10
_SYMBOLS, _SYMBOL_BYTES = 2, 24
#: Parts of a demangled name that stand for an unnamed namespace.
_UNNAMED = re.compile(r"(?:\(anonymous namespace\)|_GLOBAL__N_\w*|_INTERNAL_\w*)::|<unnamed>::")


def compiled_text(source: Source) -> str:
    """The text of a program for nvcc, which instantiates the templates that are named."""
    used = (
        f"static auto *const cudareduce_kernel_{k} = &{name};\n"
        for k, name in enumerate(source.kernels)
    )
    return f'{source.text}\n#line 1 "<kernels>"\n{"".join(used)}'


def kernel_symbols(cubin: bytes) -> list[str]:
    """The mangled names of the kernels in machine code: from its symbol table (elf(5))."""
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
    """A C++ name without unnamed namespaces, spaces, return type and parameters."""
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
    """The symbol of the kernel with this C++ name; None if there is none, or several."""
    wanted, names = _plain(kernel), {symbol: demangled(symbol) for symbol in symbols}
    base = wanted.partition("<")[0].rpartition("::")[2]
    exact = [s for s, name in names.items() if name == wanted]
    ends = [s for s, name in names.items() if name.endswith(f"::{wanted}")]
    same = [s for s, name in names.items() if name.partition("<")[0].rpartition("::")[2] == base]
    return next((found[0] for found in (exact, ends, same) if len(found) == 1), None)


class ExternalModule:
    """A module with the kernels and variables of an external program. Raises KernelFault where the
    driver refuses, or a kernel is not found."""

    def __init__(self, library: Any, cubin: bytes, source: Source) -> None:
        self._library, self._module = library, ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(self._module), cubin)
        self._functions = []
        symbols = kernel_symbols(cubin)
        for kernel in source.kernels:
            symbol, function = symbol_of(kernel, symbols), ctypes.c_void_p()
            if symbol is None:
                raise KernelFault(f"{source.path}: nvcc made no kernel {kernel}")
            self._call("cuModuleGetFunction", ctypes.byref(function), self._module, symbol.encode())
            self._functions.append(function)
        self._variables, self._kernels = source.variables, source.kernels
        self.initial: dict[int, bytes] = {}

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise KernelFault(f"the driver refuses {name} ({explained(self._library, code)})")

    def variable(self, index: int) -> tuple[int, int]:
        """Address and bytes of a variable."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        name = self._variables[index].rpartition("::")[2].encode()
        self._call(
            "cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), self._module, name
        )
        return address.value, size.value

    def launcher(self, call: KernelCall, stream: int, sm_count: int) -> Launch:
        """A ready launch. Raises TooManyBlocks if a cooperative one does not fit the GPU."""
        function = self._functions[call.kernel]
        threads = call.block[0] * call.block[1] * call.block[2]
        if call.shared > _UNASKED:
            self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, call.shared)
        if call.cooperative:
            each, blocks = ctypes.c_int(), call.grid[0] * call.grid[1] * call.grid[2]
            self._call(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(each), function,
                threads, ctypes.c_size_t(call.shared),
            )  # fmt: skip
            if blocks > each.value * sm_count:
                raise TooManyBlocks(
                    f"it waits for its whole grid, and of its {counted(blocks, 'block')} of "
                    f"{threads} threads this GPU holds {each.value * sm_count} at one time"
                )
        held = [
            ctypes.c_uint64(argument) if isinstance(argument, int)
            else ctypes.create_string_buffer(argument, len(argument))
            for argument in call.arguments
        ]  # fmt: skip
        places = (ctypes.c_void_p * max(1, len(held)))(*map(ctypes.addressof, held))
        name = "cuLaunchCooperativeKernel" if call.cooperative else "cuLaunchKernel"
        launch_kernel = getattr(self._library, name)
        shape = (*call.grid, *call.block, call.shared, ctypes.c_void_p(stream), places)
        arguments = shape if call.cooperative else (*shape, None)

        def launch() -> None:
            _ = held
            code = launch_kernel(function, *arguments)
            if code:
                why = explained(self._library, code)
                raise KernelFault(f"the GPU refuses to launch {self._kernels[call.kernel]}: {why}")

        return launch
