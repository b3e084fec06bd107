"""Instructions from a code object's machine code, or from assembly text."""
