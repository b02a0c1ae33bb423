"""The kernels and suites there are: every `.cu` file below the kernels folder, and a user's own."""
