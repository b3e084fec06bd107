"""The time model: what a launch does is counted or traced, and one compute unit is run through it in time."""
