"""Metal's libraries for programs without a Mac: doubles of their calls, which the emulator answers."""
