"""Metal files of other projects' checkouts: how many are read, compiled for the CPU, and give right results."""
