"""The page in a real browser: it opens quickly and asks for nothing; tables sort and filter, charts
answer the pointer, lessons open, tabs and keys work, in both themes and at a phone's width."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from cudareduce.results.store import load, to_json
from tests.conftest import ROOT
from tests.report.plot.runs import BENCH, H100, H200, PEERS, TYPES, many, with_records

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium to open a page in"),
]
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def made(folder: Path, *results: Path) -> Path:
    page = folder / "page.html"
    command = [sys.executable, "-m", "cudareduce", "report", *map(str, results)]
    subprocess.run([*command, "--html", str(page)], cwd=ROOT, check=True, timeout=120)
    return page


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several runs of two GPUs."""
    others = H100 / "libraries-float32.json", H200 / "reproduce-bbuf.json"
    return made(tmp_path_factory.mktemp("page"), BENCH, PEERS, TYPES, *others)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    for name in ("jinja2", "vl_convert"):
        pytest.importorskip(name)
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


class Watched:
    """A page that was opened, and all that it complained of or asked for."""

    def __init__(self, browser: Any, path: Path, **context: Any) -> None:
        self.page = browser.new_context(viewport=WIDE, accept_downloads=True).new_page()
        if context:
            self.page = browser.new_context(**{"viewport": WIDE, **context}).new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("body[data-ready]")

    def texts(self, selector: str) -> list[str]:
        return list(self.page.eval_on_selector_all(selector, "all => all.map(e => e.textContent)"))


@pytest.fixture
def opened(browser: Any, several: Path) -> Iterator[Watched]:
    watched = Watched(browser, several)
    yield watched
    assert watched.complaints == []
    assert watched.requests == [several.as_uri()]
    watched.page.context.close()


def test_tables_sort_by_numbers_and_by_words(opened: Watched) -> None:
    page = opened.page
    page.click("#tab-0")
    column = "#panel-0 tbody td:nth-child(5)"
    before = opened.texts(column)
    heading = page.locator("#panel-0 thead button", has_text="us")
    heading.click()

    def us() -> list[float]:
        return [float(text.partition("±")[0]) for text in opened.texts(column)]

    assert us() == sorted(us()) and opened.texts(column) != before
    assert page.get_attribute("#panel-0 th[aria-sort]", "aria-sort") == "ascending"
    heading.press("Enter")
    assert us() == sorted(us(), reverse=True)
    page.locator("#panel-0 thead button", has_text="kernel").click()
    names = opened.texts("#panel-0 tbody td:first-child")
    assert names == sorted(names)


def test_filtered_tables_show_the_number_of_remaining_rows(opened: Watched) -> None:
    page = opened.page
    page.click("#tab-1")
    assert page.locator("#panel-1 tbody tr:visible").count() == 200
    page.click("#panel-1 button.more")
    assert page.locator("#panel-1 tbody tr:visible").count() == 324
    page.fill("#panel-1 input[name=find]", "cub: run")
    page.select_option("#panel-1 select[name='3']", "2^28")
    names = page.locator("#panel-1 tbody tr:visible td:first-child").all_inner_texts()
    assert names and all(name == "peer:cub:run_to_run" for name in names)
    assert page.inner_text("#shown-1") == f"{len(names)} of 324 records"
    page.fill("#panel-1 input[name=find]", "WRONG")
    page.select_option("#panel-1 select[name='3']", "")
    assert page.locator("#panel-1 tr.wrong:visible").count() == 1


def test_charts_show_the_point_under_the_pointer(opened: Watched) -> None:
    page = opened.page
    page.click("#tab-1")
    page.wait_for_selector("#panel-1 .chart[data-drawn] svg path")
    point = page.locator("#panel-1 .chart").first.locator("path[aria-roledescription=point]").last
    point.hover(force=True)
    page.wait_for_selector("#vg-tooltip-element.visible")
    told = page.inner_text("#vg-tooltip-element")
    assert "GB/s" in told and "±" in told and "n (elements)" in told


def test_another_picture_is_chosen(opened: Watched) -> None:
    page = opened.page
    page.click("#tab-1")
    chart = page.locator("#panel-1 .chart").first
    page.wait_for_selector("#panel-1 .chart[data-drawn]")
    select = page.locator("#panel-1 select.choose").first
    select.select_option(label="Time over n: sum of float32, cold")
    page.wait_for_function("e => e.dataset.drawn === e.dataset.chart", arg=chart.element_handle())
    assert "Time over n" in chart.get_attribute("aria-label")
    assert "us" in chart.inner_text()


def test_a_name_opens_its_lesson_and_escape_closes_it(opened: Watched) -> None:
    page = opened.page
    page.click("#tab-0")
    page.locator("#panel-0 tbody button", has_text="reduce_v6_multi_add").press("Enter")
    dialog = page.locator("#lesson-reduce_v6_multi_add")
    assert "Each thread adds ITEMS elements" in dialog.inner_text()
    assert "+extern" in dialog.inner_text() and dialog.locator(".added").count() > 3
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "close"
    dialog.locator("button", has_text="reduce_v5_completely_unroll").click()
    before = page.locator("#lesson-reduce_v5_completely_unroll")
    assert before.is_visible()
    page.keyboard.press("Escape")
    assert dialog.is_visible() and not before.is_visible()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert page.locator("[popover] pre:not([tabindex])").count() == 0
    page.locator("#lineage button", has_text="reduce_atomic").first.click()
    assert "extern" in page.locator("#lesson-reduce_atomic").inner_text()
    page.keyboard.press("Escape")
    page.click("#tab-4")  # names of a publication
    page.locator("#panel-4 tbody button", has_text="reduce_baseline").click()
    assert page.locator("#lesson-reduce_v0_baseline").is_visible()


def test_what_scrolls_is_reached_by_keys(opened: Watched) -> None:
    page = opened.page
    page.set_viewport_size(PHONE)
    for k in range(5):
        page.click(f"#tab-{k}")
        page.wait_for_selector(f"#panel-{k} .chart[data-drawn]")
    page.wait_for_timeout(300)
    stuck = "all => all.filter(e => e.scrollWidth > e.clientWidth && e.tabIndex < 0).length"
    assert page.eval_on_selector_all(".chart, .scroll", stuck) == 0


def test_names_of_a_map_keep_to_their_fields(opened: Watched) -> None:
    page = opened.page
    page.click("#tab-1")
    place = page.locator("#panel-1 .chart").last
    place.locator("g.mark-rect path").first.wait_for()
    boxes = "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.right])"
    words = place.locator("g.mark-text.role-mark text").evaluate_all(boxes)
    assert words and all(a[1] <= b[0] for a, b in pairwise(sorted(words)))


def test_names_of_any_kind_are_rows(browser: Any, tmp_path: Path) -> None:
    """Long ones, those of the browser's own objects, and those that are HTML."""
    run = load(BENCH)
    names = ["x" * 300, "constructor", "__proto__", "<script>alert(1)</script>", "größe"]
    records = [replace(r, kernel=name) for r, name in zip(run.records, names, strict=False)]
    records[1:3] = [replace(r, verdict="skip", time_us=None) for r in records[1:3]]
    path = tmp_path / "names.json"
    path.write_text(to_json(with_records(run, records)))
    watched = Watched(browser, made(tmp_path, path))
    assert watched.texts("tbody td:first-child") == names
    assert watched.page.locator("tbody button").count() == 0
    assert watched.page.eval_on_selector("tbody td", "e => e.offsetWidth") < 400
    assert watched.complaints == []
    watched.page.context.close()


def test_arrow_keys_move_between_tabs(opened: Watched) -> None:
    page = opened.page
    assert page.inner_text("[aria-selected=true]") == "Compared"
    assert "share of the ceiling (%)" in page.locator("#panel-compared .chart").first.inner_text()
    page.focus("#tab-compared")
    page.keyboard.press("ArrowRight")
    assert page.is_visible("#panel-0") and not page.is_visible("#panel-compared")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.id") == "tab-4"
    assert page.is_visible("#panel-4")


def test_the_file_can_be_had_back(opened: Watched) -> None:
    with opened.page.expect_download() as download:
        opened.page.locator("button.raw").first.click()
    assert download.value.suggested_filename == "bench-2p25-float32.json"
    saved = Path(download.value.path()).read_text()
    assert json.loads(saved) == json.loads(BENCH.read_text())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, WIDE], ids=["phone", "wide"])
def test_nothing_reaches_beyond_the_width_and_words_can_be_read(
    browser: Any, several: Path, viewport: dict[str, int], scheme: str
) -> None:
    watched = Watched(browser, several, viewport=viewport, color_scheme=scheme)
    page = watched.page
    for k in range(5):
        page.click(f"#tab-{k}")
        page.wait_for_selector(f"#panel-{k} .chart[data-drawn]")
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        rows = page.eval_on_selector_all(
            f"#panel-{k} tbody tr", "all => Math.max(...all.map(e => e.offsetHeight))"
        )
        assert rows < 260
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    label = page.evaluate(
        "getComputedStyle(document.querySelector('#panel-4 svg .role-axis-label text')).fill"
    )
    bright = [sum(map(int, colour[4:-1].split(","))) for colour in (ground, label)]
    assert abs(bright[0] - bright[1]) > 500
    assert watched.complaints == []
    page.context.close()


def test_every_control_has_a_label_for_screen_readers(opened: Watched) -> None:
    """Controls have names, tables headings with a scope, pictures a text."""
    page = opened.page
    nameless = page.eval_on_selector_all(
        "button, select, input, a[href]",
        "all => all.filter(e => !(e.textContent.trim() || e.ariaLabel || e.labels?.length"
        " || e.getAttribute('aria-labelledby'))).length",
    )
    assert nameless == 0
    assert page.locator("th:not([scope=col])").count() == 0
    assert page.locator(".chart:not([aria-label])").count() == 0
    assert page.get_attribute("html", "lang") == "en"
    levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(e => +e.tagName[1])")
    assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels))


def test_print_has_the_tables_and_charts(opened: Watched) -> None:
    page = opened.page
    page.click("#tab-0")
    page.wait_for_selector("#panel-0 .chart[data-drawn]")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.is_visible("nav") and page.is_visible("#panel-0 table")
    assert page.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.slow
def test_five_thousand_records_open_in_seconds(browser: Any, tmp_path: Path) -> None:
    """Two seconds on an idle machine, where this takes one; a busy one is given more."""
    path = tmp_path / "many.json"
    path.write_text(to_json(many(5000)))
    page = made(tmp_path, path)
    assert page.stat().st_size < 6e6
    began = perf_counter()
    watched = Watched(browser, page)
    watched.page.wait_for_selector(".chart[data-drawn]")
    assert perf_counter() - began < 10
    assert watched.complaints == []
    watched.page.context.close()
