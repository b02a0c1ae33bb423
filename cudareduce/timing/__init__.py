"""Timing: from one launch between two events to rounds in contexts of their own."""
