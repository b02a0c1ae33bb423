"""What is typed: commands, options, their types, and exit codes."""
