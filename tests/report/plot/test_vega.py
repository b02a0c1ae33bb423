"""Vega-Lite specifications: one for files and the page, readable without colour vision."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from cudareduce.report.plot.figure import Bars, Figure
from cudareduce.report.plot.kinds import figures
from cudareduce.report.plot.terminal import text_chart
from cudareduce.report.plot.vega import LIGHT, image, min_width, notes, page_spec
from cudareduce.results.store import load
from tests.report.plot.runs import AFTER, BEFORE, BENCH, H100, PEERS, SWEEP, TYPES


def values(spec: Any, key: str) -> list[Any]:
    """The values of a key at any depth."""
    if isinstance(spec, dict):
        return [*([spec[key]] if key in spec else []),
                *(v for child in spec.values() for v in values(child, key))]  # fmt: skip
    return [v for child in spec for v in values(child, key)] if isinstance(spec, list) else []


@pytest.fixture(scope="module", params=["sizes", "ladder", "winners", "speedup", "change", "gpus"])
def figure(request: pytest.FixtureRequest) -> Figure:
    files = {
        "sizes": (SWEEP,), "ladder": (BENCH,), "winners": (TYPES,), "speedup": (PEERS,),
        "change": (BEFORE, AFTER), "gpus": (PEERS, H100 / "libraries-float32.json"),
    }  # fmt: skip
    return figures([load(path) for path in files[request.param]], request.param)[0]


def test_every_point_has_a_tooltip_with_its_interval(figure: Figure) -> None:
    spec = page_spec(figure)
    fields = {field["field"] for fields in values(spec, "tooltip") for field in fields}
    assert "text" in fields
    texts = [row["text"] for row in spec["data"]["values"] if row.get("role") != "limit"]
    assert texts and all("±" in text or " to " in text for text in texts)


def test_the_page_takes_all_colours_from_its_style_sheet(figure: Figure) -> None:
    spec = page_spec(figure)
    assert "#" not in str({key: spec[key] for key in ("layer", "config")})
    assert spec["width"] == "container" and spec["description"] == figure.title


def test_axes_have_titles_with_units(figure: Figure) -> None:
    titles = {title for title in values(page_spec(figure)["layer"], "title") if title}
    assert titles & {"bandwidth (GB/s)", "n (elements)", "change of time (%)",
                     "share of the ceiling (%)"}  # fmt: skip


def test_bars_of_several_gpus_are_named_once() -> None:
    runs = [load(path) for path in (PEERS, H100 / "libraries-float32.json")]
    [shares] = figures(runs, "gpus")
    assert isinstance(shares, Bars)
    assert not any("NVIDIA" in bar.label for bar in shares.bars)
    legends = [one for one in values(page_spec(shares), "legend") if one is not None]
    assert legends and shares.groups == ["NVIDIA H200", "NVIDIA H100 80GB HBM3"]
    text = text_chart(shares, 80, colour=False)
    assert text.count("NVIDIA H100") == 1 and "▒ NVIDIA H100 80GB HBM3" in text


def test_whiskers_are_mentioned_only_where_they_are_drawn() -> None:
    ladder = figures([load(BENCH)])[0]
    assert "whiskers: 95 % intervals" in notes(ladder)
    assert "whiskers" not in text_chart(ladder, 80, colour=False)


def test_labels_do_not_overlap() -> None:
    rates = figures([load(PEERS)])[0]
    [labels] = [layer for layer in page_spec(rates)["layer"]
                if values(layer.get("mark"), "dx") == [18]]  # fmt: skip
    heights = sorted(row["label_y"] for row in labels["data"]["values"])
    assert all(b - a >= 0.044 * 4814 for a, b in pairwise(heights))


def test_a_grid_has_room_for_its_names() -> None:
    assert min_width(figures([load(TYPES)])[0]) == 3 * (12 * 6 + 8)


def test_the_palette_has_contrast_on_white() -> None:
    """At least 3 to 1, as WCAG 2.2 requires of graphics."""

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert all(1.05 / (luminance(colour) + 0.05) >= 3 for colour in LIGHT.palette)


@pytest.mark.long
def test_the_same_figure_is_the_same_file() -> None:
    pytest.importorskip("vl_convert")
    found = figures([load(TYPES)])
    svg = image(found, "svg")
    assert svg == image(found, "svg")
    assert b"cub:not_" in svg and b"n (elements)" in svg
