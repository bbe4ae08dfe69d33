"""The objects that users hold: kernels of this process, of bundles, of binaries, and checking ones."""
