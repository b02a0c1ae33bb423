"""From a kernel and a problem to launches."""
