"""Names that are longer than a picture has room for."""

from __future__ import annotations


def cut(name: str, most: int) -> str:
    """A name without its middle where it has more than so many characters: what names begin and end
    with tells them apart."""
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[len(name) - end :]}"


def broken(name: str, width: int) -> str:
    """A name in lines that a field has room for, broken where its words end."""
    lines = [""]
    for word in name.replace(":", ":\0").replace("_", "_\0").split("\0"):
        if lines[-1] and len(lines[-1] + word) > width:
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)
