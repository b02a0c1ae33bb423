"""The rows of a chart, which stand beside its specification: Altair copies what is inside."""

from __future__ import annotations

from typing import Any

#: What the rows of a chart are called in it.
ROWS = "rows"

#: A chart that takes rows of that name, and the rows.
Made = tuple[Any, list[dict[str, Any]]]
