"""Metal's libraries for programs without a Mac: replacements of their calls, which run on the emulator."""
