"""What waits for ever ends, and says so."""

from __future__ import annotations

import subprocess
import sys
import time

from cudareduce.several.meet.patience import patience

HANGS = """
import time
from cudareduce.several.meet.patience import patience
with patience("a call", 0.2):
    time.sleep(60)
"""


def test_what_takes_too_long_ends_the_process() -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True)
    assert time.monotonic() - began < 30
    assert done.returncode == 6
    assert done.stderr.startswith("cudareduce: a call has not ended within 0.2 s: see what else")


def test_what_ends_in_time_goes_on() -> None:
    with patience("a call", 0.05):
        pass
    time.sleep(0.1)
