"""Choices that are kept: what a search found (`database`), what came with tec (`shipped`), and what a compilation is told to use (`records`)."""
