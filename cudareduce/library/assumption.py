"""What was assumed about a kernel of others, in words, and how to say it better."""

from __future__ import annotations

from collections.abc import Sequence

from cudareduce.library.called import Call
from cudareduce.library.device_part import Unit
from cudareduce.library.kernel import Kernel
from cudareduce.reduction.sizes import counted


def assumption(
    kernel: Kernel, call: Call, known_from: str, later: Sequence[str], unit: Unit
) -> str:
    """One line: how it is called and launched, from where that is `known_from`, which kernels go on
    `later` and, of its `unit`, which headers are missing or were taken unasked."""
    then = f"then {later[0]}" if later else f"finish {kernel.finish}"
    shared = counted(int(kernel.dynamic_shared), "byte")
    by = f", by {kernel.ops[0]}" if len(kernel.ops) == 1 else ""
    missing = unit.missing
    are = "is" if len(missing) == 1 else "are"
    without = f"; {', '.join(missing)} {are} nowhere beside it and left out" if missing else ""
    without += f"; what it calls is in {', '.join(unit.siblings)}" if unit.siblings else ""
    likely = ", ".join(f"{name}={value}" for name, value in unit.likely.items())
    without += f"; taken as {likely}, which nothing defines (-D says better)" if likely else ""
    return (
        f"{kernel.path}: no header, so it is assumed that {call.text} {_memory(kernel, call)}, "
        f"{_values(kernel, call)}; block {kernel.block}, items {kernel.items}, "
        f"grid {kernel.fixed_grid or kernel.grid}, {shared} of dynamic shared "
        f"memory{known_from}, {then}{by}{without}. Where that is wrong say so with --entry, "
        "--block, --items, --grid, --shared, --finish, --arg, --map; where it faults, run it under "
        "compute-sanitizer"
    )


def _memory(kernel: Kernel, call: Call) -> str:
    """What it reads and writes."""
    alike = ", the same for every row" if call.one_row else ""
    reads = call.read.name + (f" and {call.other.name}{alike}" if call.other else "")
    if call.answers_in_place:
        return f"reads {reads}, leaves its answer in {reads}[0], from where it is copied"
    over = f", overwrites {call.read.name}" if kernel.in_place else ""
    where = ", a variable of the file" if call.outside else ""
    return f"reads {reads}, writes {call.write.name}{where}{over}"


def _values(kernel: Kernel, call: Call) -> str:
    """How it counts, and what else it gets and forms."""
    counting = "takes a matrix" if call.matrix else "takes whole tiles"
    counting = f"counts with {call.count.name}" if call.count else counting
    line = "column" if call.columns else "row"
    rows = f" the elements of a {line}" if call.rows else ""
    forms = [f"forms {kernel.map.expression} of its elements"] if kernel.map else []
    return ", ".join([counting + rows, *call.said, *forms])


def nowhere(missing: Sequence[str]) -> list[str]:
    """What to say of headers that are missing, where a file cannot be taken without them; nothing
    if there are none."""
    lie = "lies" if len(missing) == 1 else "lie"
    where = f"{', '.join(missing)} {lie} nowhere near it: -I says in which folder"
    return [where] if missing else []
