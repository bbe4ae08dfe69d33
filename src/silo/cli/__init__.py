"""The silo command, one file per command.

Exit codes: 0 all is well; 1 a check failed (a wrong result, a damaged bundle, a missing part); 2 wrong usage;
3 an error, with its message; 130 interrupted.
"""
