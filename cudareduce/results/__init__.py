"""What a run leaves: records, result files, and where they come from."""
