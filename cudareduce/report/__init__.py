"""Renders results as tables for terminals, Markdown, HTML and CI services."""
