"""What a kernel's instructions say before it runs: where control goes, which registers are read and filled, which modes hold."""
