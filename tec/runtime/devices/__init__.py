"""Devices: drivers, memory, streams, profiles."""
