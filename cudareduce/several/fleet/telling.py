"""Judged cards as people and programs read them: tables, CSV, JSON."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import expm1
from pathlib import Path
from statistics import median
from typing import Any

from cudareduce.escapes import shown
from cudareduce.gate.baseline import IDENTITY
from cudareduce.gate.verdicts import in_short, problem_text, reduction_text, shape_text
from cudareduce.machine.device import Conditions
from cudareduce.problem.sizes import counted
from cudareduce.report.numbers import DASH
from cudareduce.report.section import Section
from cudareduce.report.sections import listed
from cudareduce.several.fleet.judged import FEWEST, Card, Figure, Group, Model

_FEW = f"too few to tell, it takes {FEWEST} cards of a model that ran the same kernel"
_ODD = ("SLOW", "ONCE")
#: So many cards of a model are shown beside slow ones, and so many problems.
_MOST_SHOWN = 16
_MOST_PROBLEMS = 24
_CARDS = ("verdict", "card", "host", "runs", "slower", "SM", "mem", "W", "C", "ECC")
_STATE = ("sm_mhz", "memory_mhz", "power_w", "temperature_c")
#: The columns of the CSV, a line for each card and cell.
COLUMNS = (
    "verdict", "card", "host", "model", *IDENTITY, "version", "chosen", "source_sha", "cards",
    "runs", "time_us", "median_us", "slower_pct", *_STATE, "event_reasons", "ecc",
    "power_limit_w", "driver", "cuda", "nvcc",
)  # fmt: skip
_NO_REASON = "none"


def model_sections(models: Sequence[Model], store: Path, *, slow: bool) -> list[Section]:
    """Two tables for each model, of problems and of cards; with `slow` only of the slow cards."""
    names = _short(card.uuid for model in models for card in model.cards)
    found = []
    for model in models:
        if not slow:
            found.append(_problems(model))
        cards = _cards(model, names, slow=slow)
        if cards is not None:
            found.append(cards)
    if not found:
        told = sum(len(model.cards) for model in models if model.judged)
        found = [Section(f"{store}: {told or 'no'} cards judged, none of them slow", (), ())]
    few = [model.name for model in models if slow and not model.judged]
    notes = (f"{listed(few)}: {_FEW}",) if few else ()
    return [*found[:-1], replace(found[-1], notes=(*found[-1].notes, *notes))]


def _problems(model: Model) -> Section:
    """A line for each problem: how many cards, how they spread, from where on one is slow."""
    runs = sum(card.runs for card in model.cards)
    title = f"{model.name}, {counted(len(model.cards), 'card')}, {counted(runs, 'run')}"
    groups = model.groups[:_MOST_PROBLEMS]
    kinds = [reduction_text(group.record) for group in groups]
    size = "n x rows" if any(group.record.rows != 1 for group in groups) else "n"
    first = 0 if len(set(kinds)) > 1 else 1  # what holds for every row stands in the title
    title += f", {kinds[0]}" * first
    header = ("reduction", size, "kernels", "cards", "spread", "slow from")[first:]
    rows = tuple(
        (kind, in_short(shape_text(group.record)), str(group.cells), str(group.cards),
         *_spread_cells(group))[first:]
        for kind, group in zip(kinds, groups, strict=True)
    )  # fmt: skip
    notes = ["spread: standard deviation of cards; slow from: so far above their median"]
    if not model.judged:
        notes = [_FEW]
    left = len(model.groups) - len(groups)
    if left:
        notes.append(f"{counted(left, 'problem')} of fewer cards not shown; --csv has them")
    return Section(title, header, rows, tuple(notes), texts=len(header) - 4)


def _spread_cells(group: Group) -> tuple[str, str]:
    if group.spread is None or group.limit is None:
        return DASH, DASH
    return f"{100 * expm1(group.spread.usual):.2f}%", _percent(group.limit)


def _percent(share: float) -> str:
    return f"{100 * share:+.1f}%"


def _cards(model: Model, names: Mapping[str, str], *, slow: bool) -> Section | None:
    """The slow cards, and without `slow` some of the others; None if there is nothing to show."""
    odd = [card for card in model.cards if card.verdict in _ODD]
    others = [] if slow else [card for card in model.cards if card not in odd]
    shown_cards = odd + others[: max(0, _MOST_SHOWN - len(odd))]
    if not shown_cards:
        return None
    rows = [_row(card, names) for card in shown_cards]
    if model.judged:
        rows.append(_middle_row(model))
    counts = Counter(card.verdict for card in model.cards)
    told = ", ".join(f"{counts[word]} {word}" for word in ("SLOW", "ONCE", "FINE") if counts[word])
    title = f"{model.name}, cards" + (f": {told}" if told else "")
    return Section(
        title, _CARDS, tuple(rows), tuple(_notes(model, shown_cards, names, slow=slow)), texts=3,
        rules=(len(shown_cards),) if model.judged else (),
    )  # fmt: skip


def _row(card: Card, names: Mapping[str, str]) -> tuple[str, ...]:
    ecc = DASH if card.device.ecc is None else "on" if card.device.ecc else "off"
    return (
        DASH if card.verdict == "FEW" else card.verdict, names[card.uuid],
        (card.device.host or DASH).partition(".")[0], str(card.runs),
        DASH if card.slower is None else _percent(card.slower), *_state_cells(card.state), ecc,
    )  # fmt: skip


def _middle_row(model: Model) -> tuple[str, ...]:
    """What is usual for the cards of a model."""
    middles = []
    for name in _STATE:
        known = [v for card in model.cards if (v := getattr(card.state, name)) is not None]
        middles.append(median(known) if known else None)
    state = Conditions(*middles[:2], *middles[2:])
    return ("", "the middle", "", "", "", *_state_cells(state), "")


def _state_cells(state: Conditions) -> Iterator[str]:
    for name in _STATE:
        value = getattr(state, name)
        yield DASH if value is None else f"{value:.0f}"


def _notes(
    model: Model, cards: Sequence[Card], names: Mapping[str, str], *, slow: bool
) -> Iterator[str]:
    """What has no room in the table: where a card is slow, what held it back, what it has in
    another way than most."""
    for card in cards:
        told = []
        if card.at and card.verdict in _ODD:
            told += [f"slowest in {problem_text(card.at)}"]
            told += [_throttled(card)]
        elif card.throttled:
            told += [_throttled(card)]
        told += card.otherwise
        if told:
            yield f"{names[card.uuid]}: {'; '.join(told)}"
    yield "slower: above the median, where that is most; SM, mem: MHz, W, C: while timed"
    if any(card.verdict == "ONCE" for card in cards):
        yield "ONCE: slow in one run only; bench again there, gather again"
    left = len(model.cards) - len(cards)
    if left and not slow:
        yield f"{counted(left, 'card')} not shown; --csv has every card and cell"


def _throttled(card: Card) -> str:
    if card.throttled is None:
        return f"throttled: {DASH}"
    return f"throttled by {listed(card.throttled)}" if card.throttled else "not throttled"


def _short(uuids: Iterable[str]) -> Mapping[str, str]:
    """The beginnings of UUIDs, as far as it takes to tell them apart."""
    every = set(uuids)
    for length in (12, 17, 22, 27):
        if len({uuid[:length] for uuid in every}) == len(every):
            return {uuid: uuid[:length] for uuid in every}
    return {uuid: uuid for uuid in every}


def models_csv(models: Iterable[Model]) -> str:
    """A line for each card and cell; what cannot be seen in a text is escaped."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for model in models:
        cards = {card.uuid: card for card in model.cards}
        for figure in model.figures:
            values = _line(model, cards[figure.uuid], figure)
            writer.writerow({k: shown(v) if isinstance(v, str) else v for k, v in values.items()})
    return text.getvalue()


def _line(model: Model, card: Card, figure: Figure) -> dict[str, Any]:
    record, device = figure.cell.record, card.device
    return {
        "verdict": card.verdict, "card": card.uuid, "host": device.host, "model": model.name,
        **{name: getattr(record, name) for name in (*IDENTITY, "version", "chosen", "source_sha")},
        "cards": figure.cards, "runs": figure.runs, "time_us": figure.time_us,
        "median_us": figure.median_us, "slower_pct": 100 * (figure.time_us / figure.median_us - 1),
        **{name: getattr(figure.state, name) for name in _STATE},
        "event_reasons": _reasons_text(figure),
        **{name: getattr(device, name)
           for name in ("ecc", "power_limit_w", "driver", "cuda", "nvcc")},
    }  # fmt: skip


def _reasons_text(figure: Figure) -> str | None:
    """As records have it."""
    return None if figure.throttled is None else ", ".join(figure.throttled) or _NO_REASON


def models_json(models: Iterable[Model], *, slow: bool) -> str:
    """Models with their problems and cards, with `slow` only the slow ones, as JSON."""
    found = [
        {
            "model": model.name, "judged": model.judged,
            "problems": [_group_json(group) for group in model.groups],
            "cards": [_card_json(c) for c in model.cards if not slow or c.verdict in _ODD],
        }
        for model in models
    ]  # fmt: skip
    return json.dumps(found, indent=1, allow_nan=False) + "\n"


def _group_json(group: Group) -> dict[str, Any]:
    spread, limit = group.spread, group.limit
    return _problem_json(group.record) | {
        "kernels": group.cells, "cards": group.cards,
        "spread_pct": None if spread is None else 100 * expm1(spread.usual),
        "slow_from_pct": None if limit is None else 100 * limit,
    }  # fmt: skip


def _problem_json(record: Any) -> dict[str, Any]:
    names = ("op", "map", "dtype", "acc", "n", "rows", "timing", "region", "pattern", "sms")
    return {name: getattr(record, name) for name in names}


def _card_json(card: Card) -> dict[str, Any]:
    device = asdict(card.device)
    state = {name: getattr(card.state, name) for name in _STATE}
    return {
        "card": card.uuid, "verdict": card.verdict, "runs": card.runs,
        "slower_pct": None if card.slower is None else 100 * card.slower,
        "at": card.at and _problem_json(card.at), **state,
        "throttled": card.throttled, "otherwise": list(card.otherwise), "device": device,
    }  # fmt: skip
