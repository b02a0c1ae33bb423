"""What the body of a kernel does with the names in it, as far as its text tells."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain, islice

from tree_sitter import Node

from cudareduce.cuda_source import every, parsed, text
from cudareduce.library.expressions import (
    CHANGES,
    COMPARES,
    MOST_PLACES,
    MULTIPLIES,
    adds,
    bare,
    bases,
    inner,
    is_first,
    is_only_changed,
    leaves,
    names,
    operator,
    other_factor,
    partners,
)

#: So many words of a value tell where it comes from; whoever nests values in values, as no person
#: does, is not followed further.
_MOST_WORDS = 50
#: So many words tell what others follow from: a bound for texts that nobody has written by hand.
_MOST_BEHIND = 2000
#: What the index of an element is made of.
_INDEX = frozenset(["blockIdx.x", "threadIdx.x", "thread_rank"])
#: What sets a variable, and where the variable and its value stand.
_SETS = {"init_declarator": ("declarator", "value"), "assignment_expression": ("left", "right")}


class Body:
    """The body of a kernel, parsed; the file's own `atomic` functions count as such, and it may
    have the words of its `macros`."""

    def __init__(
        self, code: str, atomic: frozenset[str] = frozenset(), macros: frozenset[str] = frozenset()
    ) -> None:
        self._nodes, self._atomic, self._macros = list(every(parsed(code))), atomic, macros

    @cached_property
    def words(self) -> frozenset[str]:
        """Names, numbers and signs that stand in it."""
        return frozenset(word for node in self._nodes[:1] for word in leaves(node))

    def has(self, name: str) -> bool:
        """Whether a name stands in it, or may be in what a macro stands for."""
        return name in self.words or name in self._macros

    @cached_property
    def called(self) -> frozenset[str]:
        """What is called as a function is, as it is written."""
        return frozenset(
            text(f) for n in self._nodes if n.type == "call_expression"
            and (f := n.child_by_field_name("function"))
        )  # fmt: skip

    def asks(self, name: str) -> bool:
        """Whether functions of a type are called by its name, or values of it as functions."""
        scopes = (n.child_by_field_name("scope") for n in self._nodes)
        if any(scope is not None and text(scope) == name for scope in scopes):
            return True
        own = (n for n in self._nodes if n.type == "declaration"
               and (kind := n.child_by_field_name("type")) and text(kind) == name)  # fmt: skip
        values = {text(one) for n in own for one in n.children_by_field_name("declarator")}
        return not self.called.isdisjoint({*values, f"{name}()", f"{name}{{}}"})

    def adds_to(self, name: str, *, rows: bool = False) -> bool:
        """Whether the one place behind a pointer, or that of each of the rows, is only ever changed
        by what is added to it, or combined with it in another way."""
        places = [n for n in self._nodes if n.type == "assignment_expression"
                  and (left := n.child_by_field_name("left")) and left.type != "identifier"
                  and name in bases(left)]  # fmt: skip
        return (
            bool(places)
            and (rows or not self.each(name))
            and all(text(place.children[1]) != "=" or adds(place) for place in places)
        )

    def behind(self, node: Node) -> frozenset[str]:
        """The words in an expression, and in whatever its variables are set to."""
        found: set[str] = set()
        left = list(islice(leaves(node), _MOST_WORDS))
        while left and len(found) < _MOST_BEHIND:
            word = left.pop()
            if word not in found:
                found.add(word)
                left += self._origins.get(word, ())
        return frozenset(found)

    def factors(self, name: str) -> list[frozenset[str]]:
        """The words behind what a variable is multiplied by; but for shares, which are divided
        again."""
        return [self.behind(node) for node in self._products.get(name, ())]

    def always_times(self, name: str) -> frozenset[str]:
        """What a variable is multiplied by wherever it stands; "" is among them for what is no
        name, or where it stands otherwise."""
        places = [n for n in self._nodes if n.type == "identifier" and text(n) == name]
        return frozenset(other_factor(place) for place in places) or frozenset([""])

    def beside(self, name: str) -> list[frozenset[str]]:
        """The words behind what is added to products of a variable."""
        return [self.behind(node) for node in self._addends.get(name, ())]

    def compared(self, name: str) -> list[frozenset[str]]:
        """The words behind what a variable is compared with."""
        return [self.behind(node) for node in self._comparisons.get(name, ())]

    def divides(self, name: str) -> bool:
        """Whether a variable is divided by something."""
        return any(bare(left) == name for left, _, _ in self._pairs("/", ">>"))

    def in_bytes(self, name: str) -> bool:
        """Whether a multiple of a variable is added to a pointer to bytes."""
        casts = ((one.child_by_field_name("type"), by) for one, by, _ in self._pairs("+"))
        return any(to and "char" in text(to) and name in names(by) for to, by in casts)

    def sought(self, name: str, *, alone: bool = False) -> bool:
        """Whether elements are equal to a variable or not, which is `alone` nowhere else."""
        beside = [self.behind(node) for node in partners(self._pairs("==", "!=")).get(name, [])]
        times = sum("[" in words for words in beside)
        stands = sum(n.type == "identifier" and text(n) == name for n in self._nodes)
        return times == stands > 0 if alone else times > 0

    def bounds(self, name: str) -> bool:
        """Whether a variable is compared with an index."""
        return any(words & _INDEX for words in self.compared(name))

    def atomics(self, name: str) -> frozenset[str]:
        """The atomic functions that change what is behind a pointer or a reference."""
        return frozenset(self._atomics.get(name, ()))

    def changes(self, name: str) -> bool:
        """Whether what is behind a pointer is written to."""
        return name in self._changed or name in self._atomics

    def only_changes(self, name: str) -> bool:
        """Whether what is behind a pointer is written to, and never read."""
        named = [n for n in self._nodes if n.type == "identifier" and text(n) == name]
        return bool(named) and all(map(is_only_changed, named))

    def reads_first(self, name: str) -> bool:
        """Whether an element behind a pointer is read before the text sets any."""
        for node in self._nodes:
            array = node.child_by_field_name("argument")
            if node.type == "subscript_expression" and array is not None and bare(array) == name:
                return node.parent is None or node.parent.child_by_field_name("left") != node
        return False

    def each(self, name: str) -> str:
        """What there is a place for behind a pointer: `threads` of the grid or its blocks (`grid`),
        by the indices that stand there; empty for one place alone. Where none names a block there
        is one, with a place for each of its threads."""
        indices = self._behind_indices(name)
        if any({"threadIdx.x", "blockIdx.x"} <= words for words in indices):
            return "threads"
        if any("threadIdx.x" in w for w in indices) and not any("blockIdx.x" in w for w in indices):
            return "threads"
        return "grid" if indices else ""

    def of_blocks(self, name: str) -> bool:
        """Whether every place behind a pointer is one of a block's own."""
        indices = self._behind_indices(name)
        return bool(indices) and all("blockIdx.x" in words for words in indices)

    def in_one_place(self, name: str) -> bool:
        """Whether what is behind a pointer is only ever that one value, as `*x` or `x[0]`."""
        stands = [n for n in self._nodes if n.type == "identifier" and text(n) == name]
        return bool(stands) and all(is_first(node) for node in stands)

    def places(self, name: str) -> frozenset[str]:
        """What stands in the brackets behind a pointer."""
        nodes = (n for n in self._nodes if n.type == "subscript_expression")
        pairs = (map(n.child_by_field_name, ("argument", "indices")) for n in nodes)
        return frozenset(text(at) for array, at in pairs if array and at and bare(array) == name)

    def follows(self, name: str, words: frozenset[str]) -> bool | None:
        """Whether a place behind a pointer hangs on one of these words, as far as indices stand
        there; None if none does."""
        indices = self._behind_indices(name)
        return any(behind & words for behind in indices) if indices else None

    def _behind_indices(self, name: str) -> list[frozenset[str]]:
        """The words behind each index of what is behind a pointer."""
        return [self.behind(node) for node in self._indices.get(name, ())]

    @cached_property
    def _origins(self) -> dict[str, set[str]]:
        """The words in what each variable is set to."""
        found: dict[str, set[str]] = {}
        for node in self._nodes:
            fields = _SETS.get(node.type)
            target, value = map(node.child_by_field_name, fields) if fields else (None, None)
            if target is not None and value is not None and target.type == "identifier":
                words = islice(leaves(value), _MOST_WORDS)
                found.setdefault(text(target), set()).update(words)
        return found

    @cached_property
    def _products(self) -> dict[str, list[Node]]:
        shares = frozenset(inner(left).id for left, _, _ in self._pairs("/", "%"))
        whole = (pair for pair in self._pairs("*") if pair[2].id not in shares)
        return partners(chain(whole, self._called_products()))

    def _called_products(self) -> Iterator[tuple[Node, Node, Node]]:
        """The same of calls that multiply, as old cards did faster."""
        for node in self._nodes:
            called, given = map(node.child_by_field_name, ("function", "arguments"))
            factors = given.named_children if given is not None else []
            if called is not None and text(called) in MULTIPLIES and len(factors) == 2:
                yield factors[0], factors[1], node

    @cached_property
    def _addends(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for left, right, _ in self._pairs("+"):
            for side, other in ((inner(left), right), (inner(right), left)):
                factors = side.named_children if operator(side) == "*" else []
                for name in {bare(factor) for factor in factors}:
                    found.setdefault(name, []).append(other)
        for node in self._nodes:
            array, places = map(node.child_by_field_name, ("argument", "indices"))
            start = self._pointers.get(bare(array)) if array is not None else None
            if start is not None and places is not None and places.named_children:
                index = inner(places.named_children[0])
                factors = index.named_children if operator(index) == "*" else []
                for name in {bare(factor) for factor in factors}:
                    found.setdefault(name, []).append(start)
        return {name: others[:MOST_PLACES] for name, others in found.items()}

    @cached_property
    def _pointers(self) -> dict[str, Node]:
        """Where each pointer begins that the text declares."""
        found = {}
        for node in self._nodes:
            target, value = map(node.child_by_field_name, _SETS["init_declarator"])
            if target is not None and target.type == "pointer_declarator" and value is not None:
                found[text(target).lstrip("* ")] = value
        return found

    @cached_property
    def _comparisons(self) -> dict[str, list[Node]]:
        return partners(self._pairs(*COMPARES))

    @cached_property
    def _indices(self) -> dict[str, list[Node]]:
        """What stands in the brackets behind each name, or is added to it; numbers are none."""
        found = partners(self._pairs("+"))
        for node in self._nodes:
            array, places = map(node.child_by_field_name, ("argument", "indices"))
            if node.type != "subscript_expression" or array is None or places is None:
                continue
            if any(child.type != "number_literal" for child in places.named_children):
                found.setdefault(bare(array), []).append(places)
        return {name: places[:MOST_PLACES] for name, places in found.items()}

    @cached_property
    def _atomics(self) -> dict[str, set[str]]:
        """The atomic functions that are given each name, or a place behind it, be it by another
        pointer that begins there."""
        found: dict[str, set[str]] = {}
        for node in self._nodes:
            function, given = map(node.child_by_field_name, ("function", "arguments"))
            if function is None or given is None or function.type != "identifier":
                continue
            called, places = text(function), given.named_children
            if (called.startswith("atomic") or called in self._atomic) and places:
                words = list(islice(leaves(places[0]), _MOST_WORDS))
                starts = (self._pointers[word] for word in words if word in self._pointers)
                words += [word for start in starts for word in islice(leaves(start), _MOST_WORDS)]
                for word in words:
                    found.setdefault(word, set()).add(called)
        return found

    @cached_property
    def _changed(self) -> frozenset[str]:
        """The names behind which something is written to; none that are set themselves."""
        fields = ((node, CHANGES.get(node.type)) for node in self._nodes)
        targets = (node.child_by_field_name(field) for node, field in fields if field)
        behind = (target for target in targets if target and target.type != "identifier")
        return frozenset(name for target in behind for name in bases(target))

    def _pairs(self, *operators: str) -> Iterator[tuple[Node, Node, Node]]:
        """Both sides of each such operation, and the whole."""
        for node in self._nodes:
            if operator(node) in operators:
                left, right = map(node.child_by_field_name, ("left", "right"))
                if left is not None and right is not None:
                    yield left, right, node
