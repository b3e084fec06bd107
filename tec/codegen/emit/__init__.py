"""The emitter: lowered functions in, LLVM IR text out. What every target shares."""
