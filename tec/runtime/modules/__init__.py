"""Modules and their functions: arguments, host programs, machine code, packages."""
