"""Choices that are kept: what a search found (`database`), and what a compilation is told to use (`records`)."""
