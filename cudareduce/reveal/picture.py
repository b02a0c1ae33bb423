"""A tree as people see it: from the whole down to single elements, what repeats told once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from cudareduce.launch.tree import Tree

#: Lines of a picture; what is irregular has as many kinds of sums as elements.
_MOST_LINES = 24
#: Characters of what a sum is made of, so that a line fits 80 columns.
_ROOM = 60
_TOGETHER, _IN_TURN = "together", "one after the other"
_INDENT = "  "


def picture(tree: Tree) -> list[tuple[str, str]]:
    """Sums of so many elements, indented below the sum that they are part of, and what each is made
    of; of a sample, the sums that its first element passes through, and what it meets there."""
    lines = list(_Drawing(tree).lines() if tree.exact else _way(tree))
    if len(lines) > _MOST_LINES:
        left = len(lines) - _MOST_LINES + 1
        return [*lines[: _MOST_LINES - 1], ("...", f"and {left} more lines")]
    return lines


class _Drawing:
    """A tree whose nodes have a kind: two sums are of one kind if one is the other moved along."""

    def __init__(self, tree: Tree) -> None:
        self._tree, self._count = tree, len(tree.leaves)
        kinds: dict[object, int] = {}
        self._kinds = [0] * self._count
        for number, join in enumerate(tree.joins, self._count):
            first = tree.lowest[number]
            shape = tuple((tree.lowest[part] - first, self._kinds[part]) for part in join.parts)
            self._kinds.append(kinds.setdefault(shape, len(kinds) + 1))

    def lines(self) -> Iterator[tuple[str, str]]:
        """Each kind of sum once, below the first that holds it."""
        told: set[int] = set()
        waiting = [(self._count + len(self._tree.joins) - 1, 0)]
        while waiting:
            number, level = waiting.pop()
            if self._kinds[number] in told or number < self._count:
                continue
            told.add(self._kinds[number])
            how, parts = self._how(number)
            yield f"{_INDENT * level}{self._size(number)}", how
            waiting += [(part, level + 1) for part in reversed(parts)]

    def _size(self, number: int) -> int:
        return 1 if number < self._count else self._tree.joins[number - self._count].size

    def _parts(self, number: int) -> tuple[int, ...]:
        return self._tree.joins[number - self._count].parts

    def _how(self, number: int) -> tuple[str, Sequence[int]]:
        """How a sum is made, and of what."""
        halves, (head, chain) = self._halves(number), self._chain(number)
        if len(chain) > 2:
            before = "" if head is None else f"{self._whole(head)}, then "
            text = f"{before}{self._alike(chain, _IN_TURN, len(before))}"
            return text, chain[:1] if head is None else (head, chain[0])
        if halves:
            bottom, steps = halves
            what = f"{2 ** len(steps)} x {self._size(bottom)} in halves, "
            return f"{what}{_numbers(steps, len(what))} apart", (bottom,)
        parts = self._parts(number)
        if len(parts) > 2 and len({self._kinds[part] for part in parts}) == 1:
            return self._alike(parts, _TOGETHER), parts[:1]
        how = f", {_TOGETHER}" if len(parts) > 2 else ""
        told = _texts([self._whole(part) for part in parts], " + ", len(how))
        return f"{told}{how}", parts

    def _whole(self, number: int) -> str:
        size, first = self._size(number), self._first(number)
        return f"{size} from {first} on" if size > 1 else f"element {first}"

    def _alike(self, parts: Sequence[int], how: str, taken: int = 0) -> str:
        """Sums of one kind, and where they begin; of the first two either may be the first."""
        size, firsts = self._size(parts[0]), [self._first(part) for part in parts]
        what = f"{len(parts)} x {size} {how}"
        for order in (firsts, [firsts[1], firsts[0], *firsts[2:]]):
            steps = {second - first for first, second in pairwise(order)}
            if len(steps) == 1:
                step = steps.pop()
                return f"{what}, {abs(step)} apart{', the last first' * (step < 0)}"
        if size == 1:
            return f"{what}: {_numbers(firsts, taken + len(what) + 2)}"
        return f"{what}, from {_numbers(firsts, taken + len(what) + 10)} on"

    def _first(self, number: int) -> int:
        return self._tree.lowest[number]

    def _halves(self, number: int) -> tuple[int, list[int]] | None:
        """What a sum in halves is made of, and how far apart they lie, from the first addition to
        the last; None if its halves are of different kinds."""
        steps = []
        while number >= self._count:
            parts = self._parts(number)
            if len(parts) != 2 or self._kinds[parts[0]] != self._kinds[parts[1]]:
                break
            steps.append(self._first(parts[1]) - self._first(parts[0]))
            number = parts[0]
        return (number, steps[::-1]) if steps else None

    def _chain(self, number: int) -> tuple[int | None, list[int]]:
        """Sums of one kind that are added one after the other, and to what, if that is none of
        them."""
        chain: list[int] = []
        kind = None
        while number >= self._count and len(self._parts(number)) == 2:
            small, large = sorted(self._parts(number), key=self._size)
            kind = self._kinds[small] if kind is None else kind
            if self._kinds[small] != kind:
                break
            chain.append(small)
            number = large
            if self._kinds[number] == kind:
                break
        chain.reverse()
        if self._kinds[number] != kind:
            return number, chain
        chain.insert(0, number)
        return None, [*sorted(chain[:2], key=self._first), *chain[2:]]  # either may be the first


def _way(tree: Tree) -> Iterator[tuple[str, str]]:
    at, count = 0, len(tree.leaves)
    for number, join in enumerate(tree.joins, count):
        if at in join.parts:
            beside = tree.sets[number] & ~tree.sets[at]
            met = [leaf for k, leaf in enumerate(tree.leaves) if beside >> k & 1]
            yield str(join.size), _numbers(met)
            at = number


def _numbers(numbers: Sequence[int], taken: int = 0) -> str:
    return _texts(list(map(str, numbers)), " ", taken)


def _texts(texts: Sequence[str], between: str, taken: int = 0) -> str:
    """Texts in the room that is left; of too many the first ones and the last."""
    whole = between.join(texts)
    if len(texts) < 3 or taken + len(whole) <= _ROOM:
        return whole
    room, first = _ROOM - taken - len(between.join(["...", texts[-1]])), [texts[0]]
    while len(between.join([*first, texts[len(first)]])) + len(between) <= room:
        first.append(texts[len(first)])
    return between.join([*first, "...", texts[-1]])
