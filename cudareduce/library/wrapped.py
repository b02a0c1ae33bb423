"""Launches of kernels that a function of the file is given: `timed(kernel, blocks, threads, ...)`,
which launches what it is called with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from cudareduce.cuda_source import every, members, text
from cudareduce.library.syntax import Piece, declared_name

_PACKS = frozenset(["variadic_parameter_declaration", "parameter_pack_expansion"])


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A function whose parameter of the name `kernel` is launched: the names of its parameters, of
    which the last may stand for all that are left (`packs`), and the words of the launch, its
    arguments behind its configuration."""

    kernel: str
    names: tuple[str, ...]
    packs: bool
    configuration: tuple[Node, ...]
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """A call of a wrapper at a `place`: the kernel, its configuration, its arguments."""

    place: Node
    kernel: Node
    configuration: tuple[Node, ...]
    arguments: tuple[Node, ...]


def wrapper_of(
    definition: Node, kernel: str, configuration: Sequence[Node], arguments: Sequence[Node]
) -> tuple[str, Wrapper] | None:
    """The name of a function and what it launches, if that is a parameter of it."""
    declared = definition.child_by_field_name("declarator")
    listed = declared.child_by_field_name("parameters") if declared else None
    parameters = members(listed)
    names = tuple(map(declared_name, parameters))
    if declared is None or kernel not in names:
        return None
    packs = parameters[-1].type in _PACKS
    own = Wrapper(kernel, names, packs, tuple(configuration), tuple(arguments))
    return declared_name(declared), own


def given_to(wrappers: Mapping[str, Wrapper], piece: Piece) -> Iterator[Given]:
    """What these functions are given wherever a piece calls them, as far as each word of their
    launch is a parameter of theirs, or a number."""
    for node in every(piece.node):
        named = node.child_by_field_name("function") if node.type == "call_expression" else None
        called = text(named.child_by_field_name("name") or named) if named else ""
        listed = node.child_by_field_name("arguments")
        if called not in wrappers or listed is None:
            continue
        wrapper = wrappers[called]
        words = members(listed)
        bound: dict[str, tuple[Node, ...]] = {}
        bound |= {name: (word,) for name, word in zip(wrapper.names, words, strict=False)}
        if wrapper.packs:
            bound[wrapper.names[-1]] = words[len(wrapper.names) - 1 :]
        configuration = _replaced(wrapper.configuration, bound)
        arguments = _replaced(wrapper.arguments, bound)
        if configuration and arguments and wrapper.kernel in bound:
            yield Given(node, bound[wrapper.kernel][0], configuration, arguments)


def _replaced(
    words: Sequence[Node], bound: Mapping[str, tuple[Node, ...]]
) -> tuple[Node, ...] | None:
    """Words with what is given for those that are parameters; None where another is no number."""
    found: list[Node] = []
    for word in words:
        name = text(word).removesuffix("...").strip() if word.type in _PACKS else text(word)
        if name not in bound and word.type != "number_literal":
            return None
        found += bound.get(name, (word,))
    return tuple(found)
