"""Plans of networks: steps, checks, memory, sizes, launches as data."""
