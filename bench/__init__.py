"""Measurements of Silo, one folder or module for each subject.

README.md lists what each measures and the command that runs it.
"""
