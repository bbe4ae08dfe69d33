"""The silo command, one file per command.

Exit codes: 0 if all is well; 1 if a check failed (a wrong result, a damaged bundle, a missing part); 2 for wrong usage;
3 for an error, with its message; 130 if interrupted.
"""
