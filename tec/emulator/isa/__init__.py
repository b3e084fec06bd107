"""What each opcode does: the table of opcodes, a file for each family of them, and the arithmetic of formats and of matrix products that they share."""
