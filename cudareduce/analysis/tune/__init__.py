"""Searches the fastest launch shapes on a GPU and stores them for `auto`."""
