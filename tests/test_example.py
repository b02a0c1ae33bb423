"""The notebook of the documents is run anew, cell by cell, and shows what it showed.

`CUDAREDUCE_UPDATE_EXAMPLE=1 pytest tests/test_example.py` writes outputs anew; look at the diff.
"""

from __future__ import annotations

import ast
import json
import os
from base64 import b64encode
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

NOTEBOOK = ROOT / "docs" / "example.ipynb"


def outputs(source: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    """What a notebook stores of a cell: what it prints, and the value of its last expression."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    printed, value = StringIO(), None
    with redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())})
    if value is not None:
        found.append({"data": data(value), "metadata": {}, "output_type": "display_data"})
    return found


def data(value: Any) -> dict[str, Any]:
    """A value in each form that it has."""
    found: dict[str, Any] = {}
    if hasattr(value, "_repr_html_"):
        found["text/html"] = lines(value._repr_html_())
    if hasattr(value, "_repr_png_"):
        found["image/png"] = b64encode(value._repr_png_()).decode()
    return found | {"text/plain": lines(repr(value))}


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def text_of(output: dict[str, Any]) -> Any:
    """What of an output is the same on every machine: a picture's bytes are the library's."""
    if "data" not in output:
        return output
    return {kind: text for kind, text in output["data"].items() if kind != "image/png"}


def test_the_example_prints_what_it_printed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudareduce.backends.selection.default_cache", lambda: cache)
    monkeypatch.chdir(NOTEBOOK.parent)
    notebook = json.loads(NOTEBOOK.read_text())
    namespace: dict[str, Any] = {}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    pictures = 0
    for number, cell in enumerate(code, 1):
        made = outputs("".join(cell["source"]), namespace)
        pictures += sum("image/png" in output.get("data", {}) for output in made)
        if os.environ.get("CUDAREDUCE_UPDATE_EXAMPLE"):
            cell |= {"execution_count": number, "outputs": made}
        assert [text_of(one) for one in cell["outputs"]] == [text_of(one) for one in made]
    assert pictures == 1
    if os.environ.get("CUDAREDUCE_UPDATE_EXAMPLE"):
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
