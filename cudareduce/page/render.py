"""The page as a text: what was found, in the templates, with everything it takes in itself."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from importlib.util import find_spec

from cudareduce.errors import EnvironmentProblem
from cudareduce.page.charts import chart
from cudareduce.page.lessons import Branch, Errata, Lesson
from cudareduce.page.sheet import Sheet
from cudareduce.plot.figure import Figure
from cudareduce.plot.names import HEADINGS

_TAKES = ("altair", "jinja2", "vl_convert")
#: What the browser's own script takes from the charting library.
_TAKEN = "window.vegaEmbed = vegaEmbed;"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that the page shows; `raw` are the result files as they were read, by sheet."""

    title: str
    made: str
    sheets: tuple[Sheet, ...]
    comparison: Mapping[str, Sequence[Figure]]
    lessons: tuple[Lesson, ...]
    lineage: tuple[Branch, ...]
    errata: tuple[Errata, ...]
    raw: tuple[str, ...]


def render(page: Page) -> str:
    """The HTML. Without Jinja, Altair or vl-convert an EnvironmentProblem."""
    lacking = [name for name in _TAKES if find_spec(name) is None]
    if lacking:
        raise EnvironmentProblem(
            f"a page takes {', '.join(lacking)}: pip install 'cudareduce[html]'"
        )
    import vl_convert
    from jinja2 import Environment, PackageLoader

    pictures = [*(sheet.pictures for sheet in page.sheets), page.comparison]
    charts = [
        {"title": f.title, "notes": f.notes, "spec": chart(f)}
        for kinds in pictures for figures in kinds.values() for f in figures
    ]  # fmt: skip
    data = {
        "tables": [
            {"header": s.header, "numbers": s.numbers, "rows": s.rows, "published": s.published}
            for s in page.sheets
        ],
        "charts": charts,
        "lessons": {lesson.id: asdict(lesson) for lesson in page.lessons},
    }
    environment = Environment(
        loader=PackageLoader("cudareduce.page"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    template = environment.get_template("page.html")
    html: str = template.render(
        page=page, headings=HEADINGS, data=_packed(json.dumps(data, allow_nan=False)),
        raw=[_packed(text) for text in page.raw], style=_own("page.css"), script=_own("page.js"),
        library=_closed(vl_convert.javascript_bundle(_TAKEN)),
    )  # fmt: skip
    return html


def _packed(text: str) -> str:
    """As the browser unpacks it: gzip, in base64."""
    return base64.b64encode(gzip.compress(text.encode("utf-8"), 6, mtime=0)).decode("ascii")


def _own(name: str) -> str:
    return files("cudareduce.page").joinpath("templates", name).read_text(encoding="utf-8")


def _closed(script: str) -> str:
    """A script that cannot end the element that holds it."""
    return script.replace("</script", "<\\/script")
