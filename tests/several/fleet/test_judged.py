"""Cards of simulated fleets: who is called slow, who is not, and what is said beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudareduce.several.fleet.judged import Card, Model, judged
from cudareduce.several.fleet.store import Held
from tests.several.fleet.fleets import simulated, uuid
from tests.several.fleet.rates import false_rate, found_rate


def verdicts(model: Model) -> dict[int, str]:
    return {int(card.uuid[-12:], 16): card.verdict for card in model.cards}


def card_of(model: Model, number: int) -> Card:
    return next(card for card in model.cards if card.uuid == uuid(number))


@pytest.mark.long
def test_equal_cards_are_fine() -> None:
    assert false_rate(8, 100, 0.007) == 0
    assert false_rate(8, 100, 0.02) <= 0.04
    assert false_rate(64, 20, 0.007) == 0


def test_slow_cards_are_found() -> None:
    assert found_rate(8, 1, 0.08, 40, 0.007) >= 0.9
    assert found_rate(8, 2, 0.12, 20, 0.007) >= 0.9
    assert found_rate(64, 16, 0.07, 5, 0.007) >= 0.95


def test_ten_slow_ones_among_two_thousand() -> None:
    [model] = judged(simulated(2000, 2, dict.fromkeys(range(10), 0.08)))
    assert {k for k, word in verdicts(model).items() if word != "FINE"} == set(range(10))
    assert [card.verdict for card in model.cards[:10]] == ["SLOW"] * 10
    assert model.judged
    [group] = model.groups
    assert (group.cells, group.cards) == (8, 2000)
    assert group.spread is not None
    assert group.spread.usual == pytest.approx(0.0075, rel=0.15)


def test_one_run_alone_is_not_enough() -> None:
    [model] = judged(simulated(20, 1, {3: 0.2}))
    assert verdicts(model)[3] == "ONCE"
    held = simulated(20, 2, {3: 0.2})
    first = {time.run for time in held.times[: len(held.cells) * 20]}
    once = [
        replace(time, time_us=time.time_us / 1.2)
        if time.run in first and held.devices[time.run].uuid == uuid(3) else time
        for time in held.times
    ]  # fmt: skip
    [model] = judged(replace(held, times=tuple(once)))
    assert verdicts(model)[3] == "ONCE"


def test_what_a_card_was_long_ago_does_not_count() -> None:
    held = simulated(20, 9)
    last = len(held.cells) * 20 * 7
    slow = [
        replace(time, time_us=1.2 * time.time_us)
        if k >= last and held.devices[time.run].uuid == uuid(4) else time
        for k, time in enumerate(held.times)
    ]  # fmt: skip
    [model] = judged(replace(held, times=tuple(slow)))
    assert verdicts(model)[4] == "SLOW"
    [model] = judged(replace(held, times=(*slow, *held.times[:last])))
    assert verdicts(model)[4] == "FINE"


def test_what_is_slow_in_one_place_only_shows() -> None:
    """Memory that is slow where arrays are large, among many small sizes."""
    sizes = (2**10, 2**12, 2**14, 2**16, 2**28)
    held = simulated(24, 2, sizes=sizes)
    large = {k for k, cell in held.cells.items() if cell.record.n == 2**28}
    slow = [
        replace(time, time_us=1.15 * time.time_us)
        if time.cell in large and held.devices[time.run].uuid == uuid(7) else time
        for time in held.times
    ]  # fmt: skip
    [model] = judged(replace(held, times=tuple(slow)))
    card = card_of(model, 7)
    assert card.verdict == "SLOW"
    assert card.slower == pytest.approx(0.15, abs=0.03)
    assert card.at is not None
    assert card.at.n == 2**28


def _of_model(held: Held, name: str, first: int) -> Held:
    """The same runs, of cards of another model."""
    devices = {
        first + k: replace(device, name=name, uuid=f"{device.uuid}-{name}")
        for k, device in held.devices.items()
    }
    return Held(
        devices, held.cells, tuple(replace(time, run=first + time.run) for time in held.times)
    )


def test_models_are_judged_apart() -> None:
    one, other = simulated(12), _of_model(simulated(7), "NVIDIA L4", 1000)
    slow = tuple(replace(time, time_us=3 * time.time_us) for time in other.times)
    held = Held({**one.devices, **other.devices}, one.cells, (*one.times, *slow))
    models = judged(held)
    assert [(m.name, len(m.cards), m.judged) for m in models] == [
        ("NVIDIA H200", 12, True), ("NVIDIA L4", 7, False),
    ]  # fmt: skip
    assert set(verdicts(models[0]).values()) == {"FINE"}
    assert {card.verdict for card in models[1].cards} == {"FEW"}
    assert all(card.slower is not None for card in models[1].cards)


def test_slices_of_a_card_are_another_model() -> None:
    held = simulated(9)
    devices = {k: replace(d, sm_count=132 if k % 2 else 16) for k, d in held.devices.items()}
    names = {model.name for model in judged(replace(held, devices=devices))}
    assert {name.partition(" with ")[2].partition(" SMs")[0] for name in names} == {"132", "16"}


def test_a_card_alone_with_its_kernel_has_no_figure() -> None:
    held = simulated(1)
    [model] = judged(held)
    [card] = model.cards
    assert (card.verdict, card.slower, card.at) == ("FEW", None, None)


def test_a_card_that_ran_little_is_beside_those_that_ran_all() -> None:
    """Of eight cards one has no cell that eight have."""
    held = simulated(9)
    kept = [t for t in held.times if t.cell == 0 or held.devices[t.run].uuid != uuid(8)]
    few = [t for t in kept if t.cell != 0 or held.devices[t.run].uuid in (uuid(7), uuid(8))]
    [model] = judged(replace(held, times=tuple(few)))
    assert verdicts(model) == {**dict.fromkeys(range(8), "FINE"), 8: "FEW"}


def test_what_a_card_has_otherwise_is_told() -> None:
    held = simulated(10)
    odd = {
        k: replace(d, driver="550.54" if d.uuid == uuid(2) else "580.159", power_limit_w=700.0,
                   ecc=d.uuid != uuid(2))
        for k, d in held.devices.items()
    }  # fmt: skip
    times = [
        replace(t, event_reasons="power cap, hardware slowdown", temperature_c=None)
        if odd[t.run].uuid == uuid(2) else t
        for t in held.times
    ]  # fmt: skip
    [model] = judged(Held(odd, held.cells, tuple(times)))
    card = card_of(model, 2)
    assert card.otherwise == ("ECC off (most have on)", "driver 550.54 (most have 580.159)")
    assert card.throttled == ("hardware slowdown", "power cap")
    assert card.state.temperature_c is None
    assert card.state.sm_mhz == 1980.0
    assert card_of(model, 3).otherwise == ()
    assert card_of(model, 3).throttled == ()
