"""The pieces that templates of products are made of. A template says which pieces it takes, with which parameters, and what its tiles cost.

operands    what is multiplied: a contraction's operands, or tensors as they lie in memory; and what follows the product
padding     a contraction's operands as padded tiles, whole or in parts of the sum
grid        the tiles of the result over work-groups: row by row, in bands, over the dies, by work-groups that stay
threads     a tile's elements over threads: what is far apart, the thread, its run
staging     an operand's tile into shared memory by all threads
sums        the loop over k of a block of the result in each thread's registers
warpgroups  what a warpgroup's product takes: rows at once, rows of tiles, registers
ends        main loops, which make a tile of sums, and what becomes of it: stored, added up by a second kernel or in the work-group, handed on in shared memory
split_k     sums in parts: the kernel that adds them up
needs       what a piece needs of a tile and a machine, in words where there is less
"""
