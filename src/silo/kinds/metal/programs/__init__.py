"""Runs programs for Metal's libraries without a Mac: replaces the libraries' calls by the emulator."""
