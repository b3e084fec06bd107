"""LLVM in processes of its own: what it cannot stand ends a worker, and the caller gets an error. See docs/decisions/."""
