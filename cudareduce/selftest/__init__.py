"""Whether a machine, with this tool, measures what it says it measures."""
