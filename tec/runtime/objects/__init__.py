"""Object files: AMDGPU code objects, relocatable and shared ELF objects, line tables, bundles."""
