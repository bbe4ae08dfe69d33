"""Seams of other projects that Silo serves; none of these modules imports the project that it serves."""
