"""The command line: commands, options and their types, and exit codes."""
