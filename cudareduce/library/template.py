"""What the template parameters of a kernel that was not written for this tool get."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.body import Body
from cudareduce.library.parameters import Parameter, read_parameter
from cudareduce.library.syntax import Function

_ITEMS = re.compile(r"item|per_?thread|coars|unroll", re.IGNORECASE)
#: Threads of a block, or the elements of each where another parameter is the block's.
_THREAD = re.compile(r"threads?_?(?:size|tile)$", re.IGNORECASE)
_TYPE = re.compile(r"(?:typename|class)\b")
#: Combines as was asked for, and leaves one element as it is: what a kernel is given that leaves
#: that to who calls it, where its file has nothing that would do it.
OURS = "their_operator"


def acting(
    function: Function, parameters: Sequence[Parameter], body: Body, own: str
) -> dict[str, str]:
    """What combines, by the template parameters that are no elements but do so: types of values of
    which no pointer is, and such whose functions are called. It is what the file has of its `own`,
    else, for what is called with elements, ours."""
    held = {p.type for p in parameters if p.points}
    values = {p.type for p in parameters if not p.points and not p.refers} - held
    types = [
        name for p, name in zip(function.template, function.template_names, strict=True)
        if _TYPE.match(p)
    ]  # fmt: skip
    called = {p.type for p in parameters if p.name in body.called}
    found = [name for name in types if name in values or body.asks(name)]
    return {name: own or (OURS if name in called else "") for name in found}


def template_arguments(
    path: Path, function: Function, body: Body, own: Mapping[str, int], acting: Mapping[str, str]
) -> tuple[str, ...]:
    """Template arguments: types are the element's, but for what is `acting` as an operator, by its
    own name or by that of its type, block sizes the block's, what the body multiplies these by its
    elements a thread, others the file's own, and 1 what the body does not have. Whether a size is a
    power of two is nothing that holds of every size."""
    arguments = []
    types = {read_parameter(text).type for text in function.parameters}  # as of a concept
    blocks = {name for name in function.template_names if "block" in name.lower()}
    for parameter, name in zip(function.template, function.template_names, strict=True):
        flag, kind = parameter.startswith("bool"), parameter.rpartition(" ")[0]
        if kind in acting:
            arguments.append(acting[kind])
        elif acting.get(name):
            arguments.append(acting[name])
        elif (_TYPE.match(parameter) or name in types) and name not in acting:
            arguments.append("In")
        elif not flag and (_ITEMS.search(name) or (blocks - {name} and _THREAD.match(name))):
            arguments.append("ITEMS")
        elif not flag and (share := _share_of_block(name)):
            arguments.append(_as_launched(share, name, own))
        elif flag and (name not in own or re.search("pow", name, re.IGNORECASE)):
            arguments.append("false")
        elif name in own:
            arguments.append(f"bool({own[name]})" if flag else str(own[name]))
        elif re.search(r"per", name, re.IGNORECASE):
            arguments.append("ITEMS")
        elif "=" in parameter:
            arguments.append(parameter.partition("=")[2].strip())
        elif not _TYPE.match(parameter) and name not in body.words:
            arguments.append("1")
        elif any(words <= blocks for words in body.factors(name)):
            arguments.append("ITEMS")
        else:
            raise UsageError(
                f"{path}: template parameter {parameter!r} of {function.name} cannot be guessed: "
                f"write the arguments, as in --entry '{function.name}<{_likely(function)}>'"
            )
    return tuple(arguments)


def _share_of_block(name: str) -> str:
    """What of a block a number is called after, in C++; empty if it is something else."""
    if re.search(r"warp_?(?:size|width)|per_?warp", name, re.IGNORECASE):
        return "32"
    if re.search(r"warps", name, re.IGNORECASE):
        return "BLOCK / 32"
    return "BLOCK" if re.search(r"block|thread", name, re.IGNORECASE) else ""


def _as_launched(share: str, name: str, own: Mapping[str, int]) -> str:
    """That share of a block, unless the file's own launches, of so many threads, give another
    number there."""
    block = own.get("blockDim.x", 0)
    launched = {"BLOCK": block, "BLOCK / 32": block // 32, "32": 32}[share]
    return str(own[name]) if block and own.get(name, launched) != launched else share


def _likely(function: Function) -> str:
    """Template arguments as somebody might write them."""
    words = (
        "float" if _TYPE.match(parameter) else "false" if parameter.startswith("bool")
        else "256" if "block" in name.lower() else "1"
        for parameter, name in zip(function.template, function.template_names, strict=True)
    )  # fmt: skip
    return ", ".join(words)
