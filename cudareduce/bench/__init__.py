"""Verify, then time, then record."""
