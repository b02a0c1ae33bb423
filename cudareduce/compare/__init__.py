"""`compare`, `check` and `history`: verdicts on times, machine code and their history."""
