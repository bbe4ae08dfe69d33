"""Measurements, one folder a subject; README.md says what each measures and by which command."""
