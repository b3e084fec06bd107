"""Tools for people who work on tec: not part of the package."""
