"""How often `fleet` calls a card slow that is not, and how slow one must be for it to be found.

`python -m tests.several.fleet.rates` prints the tables of docs/fleet.md, in some
minutes of a core.
"""

from __future__ import annotations

from collections.abc import Iterable

from cudareduce.several.fleet.judged import judged
from tests.several.fleet.fleets import simulated

SIZES = (2**22, 2**25, 2**28)
_SLOWER = (0.03, 0.035, 0.04, 0.045, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4)


def slow_cards(cards: int, slow: Iterable[int], share: float, seed: int, apart: float) -> set[int]:
    """The cards that are called slow in a fleet where those of `slow` take that share more."""
    held = simulated(cards, 2, dict.fromkeys(slow, share), seed, SIZES, apart)
    [model] = judged(held)
    return {int(card.uuid[-12:], 16) for card in model.cards if card.verdict == "SLOW"}


def false_rate(cards: int, fleets: int, apart: float) -> float:
    """In what share of fleets of equal cards any is called slow."""
    return sum(bool(slow_cards(cards, (), 0.0, k, apart)) for k in range(fleets)) / fleets


def found_rate(cards: int, slow: int, share: float, fleets: int, apart: float) -> float:
    """What share of slow cards is found; as many are in each fleet."""
    found = sum(
        len(slow_cards(cards, range(slow), share, 10_000 + k, apart) & set(range(slow)))
        for k in range(fleets)
    )
    return found / (fleets * slow)


def least_found(cards: int, slow: int, fleets: int, apart: float) -> float | None:
    """How much slower a card must be to be found 19 times in 20."""
    return next((s for s in _SLOWER if found_rate(cards, slow, s, fleets, apart) >= 0.95), None)


def main() -> None:
    """Print the table."""
    print("| cards | apart by | false | one slow: found from | a quarter slow: found from |")
    print("|---|---|---|---|---|")
    for apart in (0.007, 0.02):
        for cards, fleets in ((8, 1000), (16, 400), (64, 100), (300, 20)):
            rate = false_rate(cards, fleets, apart)
            least = [least_found(cards, slow, min(40, fleets), apart) for slow in (1, cards // 4)]
            told = " | ".join("-" if one is None else f"{100 * one:g} %" for one in least)
            wrong = f"{round(rate * fleets)} of {fleets}"
            print(f"| {cards} | {100 * apart:g} % | {wrong} | {told} |", flush=True)


if __name__ == "__main__":
    main()
