"""A profile: the values of one kernel's first launch, by short names, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cudareduce.library.kernel import Kernel
from cudareduce.profile.lines import COUNTED, Line
from cudareduce.profile.static_lines import STATIC

#: Why a line has no value where nothing is missing.
_NOTHING = {
    "turns": "it does not use shared memory",
    "sectors_a_request": "its loads are bulk copies, which are not counted here",
}


@dataclass(frozen=True, slots=True)
class Profile:
    """Values by short names; `static` ones are known without a GPU. `reason` is why there are
    none."""

    kernel: Kernel
    values: Mapping[str, float]
    static: bool
    reason: str = ""

    @property
    def lines(self) -> tuple[Line, ...]:
        """Those that are told: without a GPU the ones that are known, else all."""
        if self.static:
            return tuple(line for line in STATIC if line.key in self.values)
        return COUNTED

    def why_none(self, key: str) -> str:
        """Why a line has no value."""
        idle = not self.values.get({"turns": "wavefronts"}.get(key, "requests"), 1.0)
        return _NOTHING[key] if key in _NOTHING and idle else "not counted"
