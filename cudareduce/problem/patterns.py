"""The names of input patterns, which `inputs` makes; light, so that options can list them."""

from __future__ import annotations

#: What a record may name as the pattern of its timed input.
PATTERNS = ("random", "positive", "exact", "rising", "falling", "ones", "twos", "nan", "cancel")
#: What is in a file of the user's.
GIVEN = "given"
#: What a user may ask for: the others are there to find faults of some operators.
USER_PATTERNS = ("random", "positive", "exact", "ones", "twos", "cancel")
