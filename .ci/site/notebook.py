"""A notebook as a page: its cells in order, what they print, and its pictures as files."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

_PICTURES = {"image/svg+xml": "svg", "image/png": "png"}


def page(notebook: Path) -> tuple[str, dict[str, bytes]]:
    """Its Markdown, and the files that lie beside it by their names."""
    parts, files = list[str](), dict[str, bytes]()
    for cell in json.loads(notebook.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            parts.append(_output(output, f"{notebook.stem}-{len(files) + 1}", files))
    return "\n\n".join(parts) + "\n", files


def _output(output: Any, name: str, files: dict[str, bytes]) -> str:
    """The richest form there is: a picture, tables, text."""
    if output["output_type"] == "stream":
        return _text(output["text"])
    data = output["data"]
    for kind, suffix in _PICTURES.items():
        if kind in data:
            content = "".join(data[kind])
            file = f"{name}.{suffix}"
            files[file] = content.encode() if suffix == "svg" else b64decode(content)
            return f"![What this cell draws]({file})"
    if "text/html" in data:
        return f'<div class="output">{"".join(data["text/html"])}</div>'
    return _text(data["text/plain"])


def _text(lines: list[str]) -> str:
    return f"```text\n{''.join(lines).rstrip()}\n```"
