"""Names that are longer than a picture has room for."""

from __future__ import annotations


def cut(name: str, most: int) -> str:
    """A name without its middle where it has more than so many characters: what names begin and end
    with tells them apart."""
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[len(name) - end :]}"
