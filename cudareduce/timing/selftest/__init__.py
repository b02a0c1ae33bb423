"""Tests how reliably this tool measures times on this machine."""
