"""Templates by what they compute: products, attention, codes (packed and scaled weights), and a file each for convolutions, rows, reductions, sorts and what else
moves memory. A family is a module with `match(group, target)`, which yields the spaces that serve a group."""
