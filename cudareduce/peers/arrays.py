"""Device memory and streams as libraries want to be handed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cudareduce.peers.contract import Given


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """Device memory under the CUDA array interface. It names no stream, since some libraries wait
    for the one that is named."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Its size."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "data": (self.address, False), "shape": self.shape, "typestr": self.dtype.str,
            "strides": None, "stream": None, "version": 3,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class ForeignStream:
    """A stream of ours under the stream protocol."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def given_array(given: Given) -> DeviceArray:
    """The input; bits of bfloat16, of which the interface knows nothing, travel as int16."""
    storage = given.reduction.dtype.storage
    dtype = np.dtype("int16" if given.reduction.dtype.name == "bfloat16" else storage)
    return DeviceArray(given.address, given.shape, dtype)


def answers_array(given: Given) -> DeviceArray:
    """Where answers belong."""
    return DeviceArray(given.out, given.out_shape, np.dtype(given.reduction.result_dtype))
