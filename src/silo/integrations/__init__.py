"""Integrations with other projects. None of these modules imports the project that it serves."""
