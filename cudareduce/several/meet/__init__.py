"""Ranks find each other, talk, and end together."""
