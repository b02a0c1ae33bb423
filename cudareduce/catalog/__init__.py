"""The kernels and suites in the kernels folder and in folders of the user."""
