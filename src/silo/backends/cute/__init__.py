"""Compiler plug-in: CuTe DSL sources to cubins, through the user's own installation of the DSL."""
