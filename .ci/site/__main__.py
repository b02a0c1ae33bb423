"""Build the site of the documents: python .ci/site [FOLDER], by default build/site.

Pages, the notebook among them, are written to FOLDER/pages and built into
FOLDER/html; pip install -e '.[docs]' brings what that takes. --pages writes the pages alone. It
ends with 1 on any warning, and on a link or an anchor that leads nowhere.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from gathered import gathered
from links import dead_links

ROOT = Path(__file__).resolve().parent.parent.parent


def main(arguments: list[str]) -> int:
    """Write the pages, build them, and look at every link."""
    names = [word for word in arguments if word != "--pages"]
    folder = Path(names[0]).resolve() if names else ROOT / "build" / "site"
    write_pages(folder)
    if "--pages" in arguments:
        return 0
    config = folder / "zensical.toml"
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", str(config)]
    if subprocess.run(command).returncode:
        return 1
    dead = dead_links(folder / "html")
    print("\n".join(dead) or f"{folder / 'html' / 'index.html'}: every link leads somewhere")
    return 1 if dead else 0


def write_pages(folder: Path) -> None:
    """The pages and the settings, in place of those of before."""
    shutil.rmtree(folder / "pages", ignore_errors=True)
    shutil.rmtree(folder / "html", ignore_errors=True)
    here = Path(__file__).parent
    files = gathered(ROOT)
    files["tables.css"] = (here / "tables.css").read_bytes()
    for name, content in files.items():
        path = folder / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    shutil.copy(here / "zensical.toml", folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
