"""One comment a pull request, from the rows of a comparison."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from cudareduce.compare.report import Report, comment
from cudareduce.compare.request import Thresholds
from cudareduce.compare.verdicts import Rules, compare
from cudareduce.report.ci import MARKER
from cudareduce.report.markdown import to_markdown
from cudareduce.results.record import Record
from cudareduce.results.store import to_json, write_text
from tests.compare.conftest import Machine
from tests.simulate import record, run

Call = Callable[..., tuple[int, str, str]]
FLAT = (40.0, 40.032, 39.968) * 3
RULES = Rules(Thresholds(0.05))
REPORT = Report(
    title="new.json against old.json, <H200>", head=("old: at abc", "new: at def"),
    rows=(), rules=RULES, notes=("a note",), against=("--baseline", "old.json"),
)  # fmt: skip


def case(kernel: str, factor: float = 1.0, n: int = 2**25, **changes: object) -> Record:
    return record(kernel, n, tuple(us * factor for us in FLAT), **changes)


def told(
    old: Iterable[Record], new: Iterable[Record], report: Report = REPORT,
    **code: tuple[str, ...],
) -> str:  # fmt: skip
    rows = tuple(compare(list(old), list(new), RULES))
    return comment(replace(report, rows=rows), code)


def test_kernels_are_grouped_the_worst_first() -> None:
    """Wrong, slower, gone, uncertain and faster kernels, each with its problem and next command."""
    names = ("even", "faster", "gone", "slower", "unsure", "wrong")
    old = [case(name, n=n) for name in names for n in (2**22, 2**25)]
    factors = {"faster": 0.8, "slower": 1.2, "unsure": 1.0499}
    new = [
        replace(case(r.kernel, factors.get(r.kernel, 1.0), r.n),
                cubin_sha="other" if r.kernel != "even" else r.cubin_sha)
        for r in old if r.kernel not in ("gone", "wrong")
    ]  # fmt: skip
    new += [
        case("wrong", n=2**22, verdict="fail", reason="got 1, expected 2", time_us=None,
             rounds_us=()),
        case("wrong", n=2**25),
    ]  # fmt: skip
    text = told(old, new)
    assert text.startswith(f"{MARKER}\n\n### cudareduce, 12 compared: 1 WRONG, 2 SLOWER, 2 GONE")
    places = [text.index(f"\n**{name}**\n") for name in ("wrong", "slower", "gone", "unsure")]
    assert places == sorted(places) and text.index("\n**faster**\n") > places[-1]
    assert "**even**" not in text
    assert "Other kernels: 2 compared: 2 SAME (even)" in text
    assert re.search(r"\| SLOWER +\| sum float32 2\^25 \| +40.* \| +48.* \| \+20", text)
    assert "also 1 compared: 1 SAME" in text
    assert "WRONG: got 1, expected 2" in text
    assert "machine code changed, source unchanged" in text
    for line in (
        "`cudareduce verify wrong --n 4194304 --op sum --dtype float32`",
        "`cudareduce check slower --baseline old.json`",
        "`cudareduce check --baseline old.json --allow-gone`",
        "`cudareduce check unsure --baseline old.json --budget 300`",
    ):
        assert f"next: {line}" in text
    assert "new.json against old.json, \\<H200><br>\nold: at abc<br>\nnew: at def" in text
    assert "- a note" in text


def test_unchanged_kernels_are_one_line_of_the_comment() -> None:
    old = [case(f"k{k}") for k in range(9)]
    text = told(old, old)
    assert "Other kernels: 9 compared: 9 SAME (k0, k1, k2, k3, k4, k5 and 3 more)" in text
    assert "|" not in text


def test_the_comment_describes_changes_of_machine_code() -> None:
    old = [case(f"k{k}") for k in range(2)]
    new = [replace(case(r.kernel, 1.2), cubin_sha="x", source_sha="y") for r in old]
    text = told(old, new, k0=("registers 40, was 32", "wide loads 0, was 8"))
    known = "machine code changed, source changed"
    assert text.count(known) == 2
    assert f"{known}; registers 40, was 32; wide loads 0, was 8\n" in text
    launched = [replace(r, block=128) for r in new]
    assert "source changed, launch shape changed" in told(old, launched)
    assert "machine code" not in told(old, [replace(r, cubin_sha=None) for r in new])


def test_a_comment_has_a_length() -> None:
    old = [case(f"k{k}{'x' * 100}", n=2**n) for k in range(60) for n in range(10, 29)]
    new = [replace(case(r.kernel, 1.2, r.n), cubin_sha="other") for r in old]
    text = told(old, new)
    assert len(text) < 65536
    assert "40 more kernels" in text or "Cut off here" in text


def test_names_of_a_file_are_no_html() -> None:
    hostile = "k<!-- x -->\x1b[2J|`@"
    text = told([case(hostile)], [case(hostile, 1.2, cubin_sha="other")])
    outside = "\n".join(line for line in text.splitlines() if not line.startswith("next: "))
    assert "<!-- x" not in outside.replace("\\<!-- x", "")
    assert "\x1b" not in text
    assert to_markdown([]) == ""


@pytest.mark.parametrize(
    "name",
    ["@team", "x@org/team", "#12", "`code`", "a``b", "[a](http://b)", "![a](b)", "*a*", "__a__",
     "a\\", "a|b", "a\\|b", "&#64;team", "<b>", "~~~", "~~a~~", "[a]: b", "# a", "'\""],
)  # fmt: skip
def test_names_of_a_file_are_no_markdown(name: str) -> None:
    """Names are escaped, alone and in lists, and mention nobody."""
    other = f"{name} too"
    old = [case(name), case("gone"), case("even"), case(other)]
    text = told(old, [case(name, 1.2, cubin_sha="other"), case("even"), case(other)])
    outside = "\n".join(line for line in text.splitlines() if not line.startswith("next: "))
    plain = re.sub("(@|#)&#8203;|&#8203;", "", outside.replace("### cudareduce", ""))
    assert not set("@#") & set(plain)
    page = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
    assert [page.count(tag) for tag in ("<strong>", "<code>", "<td")] == [2, 2, 2 * 5]
    assert not re.search("<(a|em|img|s|pre|b|h1)[ >]", page)
    page = unescape(page).replace("\u200b", "")
    assert f"<strong>{name}</strong>" in page
    assert f"(even, {other})" in page
    assert f"<code>cudareduce check {shlex.quote(name)} --baseline old.json</code>" in page


@pytest.mark.parametrize("how", ["file", "-"])
def test_compare_writes_one(cudareduce: Call, tmp_path: Path, how: str) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    write_text(old, to_json(run(1)))
    write_text(new, to_json(run(2, slower={"reduce_v7_shuffle": 0.1})))
    place = tmp_path / "comment.md" if how == "file" else "-"
    code, out, err = cudareduce("compare", old, new, "--comment", place)
    assert code == 1, err
    text = out if how == "-" else Path(place).read_text()
    assert text.startswith(MARKER)
    assert text.count("SLOWER    |") == 3
    assert "old: 2026-01-01" in text


@pytest.mark.long
@pytest.mark.usefixtures("small")
def test_the_next_command_compares_the_same_again(
    cudareduce: Call, machine: Machine, tree: Path, tmp_path: Path
) -> None:
    base, path = tmp_path / "base", tree / "kernel_b.cu"
    shutil.copytree(tree, base)
    path.write_text(path.read_text() + "// slower: 20 %\n")
    asked = ("--kernels", tree, "--base", base, "--n", "3000", "--op", "max,sum", "--dtype",
             "int32", "--threshold", "3%")  # fmt: skip
    code, out, err = cudareduce("check", "kernel_*", *asked, "--quiet", "--comment", "-")
    assert code == 1, err
    assert f"next: `{shlex.join(['cudareduce', 'check', 'kernel_b', *map(str, asked)])}`" in out
    path.write_text(path.read_text().replace("if (k < n)", "if (k + 1 < n)"))
    code, out, err = cudareduce("check", "kernel_*", *asked, "--quiet", "--comment", "-")
    assert code == 3, err
    [said] = re.findall("next: `cudareduce (.*)`", out)
    assert cudareduce(*shlex.split(said), "--backend", "cpu")[0] == 3


def test_the_next_command_of_a_library_measures_it() -> None:
    """`check` takes libraries by --peers, not as kernels."""
    library = case("peer:fine", 1.2, scope="library", cubin_sha=None)
    against = ("--peers", "fine", "--baseline", "old.json")
    text = told([case("peer:fine", scope="library", cubin_sha=None)], [library],
                replace(REPORT, against=against))  # fmt: skip
    assert "next: `cudareduce check --peers fine --baseline old.json`" in text
