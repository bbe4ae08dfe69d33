"""Seams of other projects that Silo serves. Nothing here imports the project that it serves, and nothing imports this."""
