"""What CPU code calls, as LLVM IR text: the thread pool, the allocator, the loop over steps."""
