"""The schedule primitives, by theme: each checks its arguments, then changes the stage."""
