"""Externs, scans and prefetches."""
