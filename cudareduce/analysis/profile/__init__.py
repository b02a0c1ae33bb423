"""Profiles: hardware counters and static facts, with explanations of what limits a kernel."""
