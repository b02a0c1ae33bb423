"""Is a time in our tables what a program of its own measures? Such programs, for libraries and for
other people's files."""
