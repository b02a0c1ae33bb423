"""The pages of the site: the Markdown of this repository where it lies, and what it links to.

Paths stay as they are, so that links that work on GitHub work here. What a link leads to besides
pages becomes one: a source as its text, a folder as a list of its files, a notebook as its cells.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from notebook import page as notebook_page

#: Where reading begins; everything else is found from here.
_FIRST = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "kernels/README.md", "docs/**/*.md",
          "docs/*.ipynb")  # fmt: skip
_AS_THEY_ARE = (".svg", ".png", ".json")
_LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".h": "cpp", ".py": "python", ".toml": "toml"}
#: `](target)` or `](target#anchor)` of something in this repository, outside of code.
_LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)(?=[)#])")
_CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
#: Sources are read from a page, not looked for.
_NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"


def gathered(root: Path) -> dict[str, bytes]:
    """Every file of the site's pages by its path. A link that leads nowhere stays as it is, for
    whoever checks the built site."""
    waiting = [path for pattern in _FIRST for path in sorted(root.glob(pattern))]
    seen, files = set(waiting), dict[str, bytes]()
    while waiting:
        path = waiting.pop()
        found, linked = _made(root, path)
        files |= found
        waiting += sorted(linked - seen)
        seen |= linked
    return files


def _made(root: Path, path: Path) -> tuple[dict[str, bytes], set[Path]]:
    """What a file of this repository is on the site, and which files it links to."""
    name = _place(root, path)
    if path.is_dir():
        return _rewritten(root, path / "README.md", _NOT_SEARCHED + _listing(root, path))
    if path.suffix in _AS_THEY_ARE:
        return {name: path.read_bytes()}, set()
    if path.suffix == ".ipynb":
        text, pictures = notebook_page(path)
        files, linked = _rewritten(root, path, text)
        beside = {(path.parent / file).relative_to(root).as_posix(): content
                  for file, content in pictures.items()}  # fmt: skip
        return files | beside, linked
    if path.suffix == ".md":
        # The README is long for a home page, above all on a phone.
        home = Path(__file__).with_name("home.md")
        return _rewritten(root, path, (home if path == root / "README.md" else path).read_text())
    fence = f"```{_LANGUAGES.get(path.suffix, 'text')}\n{path.read_text().rstrip()}\n```\n"
    title = f"# {path.relative_to(root).as_posix()}\n\n"
    return {name: (_NOT_SEARCHED + title + fence).encode()}, set()


def _rewritten(root: Path, path: Path, text: str) -> tuple[dict[str, bytes], set[Path]]:
    """Markdown whose links lead to pages of the site."""
    linked = set[Path]()

    def target(match: re.Match[str]) -> str:
        there = (path.parent / match[1]).resolve()
        if not there.exists() or not there.is_relative_to(root):
            return match[1]
        if there.is_dir() and (there / "README.md").is_file():
            there = there / "README.md"
        linked.add(there)
        return Path(os.path.relpath(root / _place(root, there), path.parent)).as_posix()

    parts = _CODE.split(text)
    parts[::2] = [_LINK.sub(target, prose) for prose in parts[::2]]
    return {_place(root, path): "".join(parts).encode()}, linked


def _place(root: Path, path: Path) -> str:
    """Where a file's page lies."""
    name = path.relative_to(root).as_posix()
    if path.is_dir():
        return f"{name}/README.md"
    return name if path.suffix in (".md", *_AS_THEY_ARE) else f"{name}.md"


def _listing(root: Path, folder: Path) -> str:
    """The sources in a folder."""
    names = sorted(path.name for path in folder.iterdir() if path.suffix in _LANGUAGES)
    title = folder.relative_to(root).as_posix()
    return f"# {title}\n\n" + "".join(f"* [{name}]({name})\n" for name in names)
