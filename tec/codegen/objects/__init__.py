"""ELF objects: read, merged to one, and linked for AMDGPU."""
