"""The kernel objects that users hold: kernels of this process, of bundles and of binaries, also in checking mode."""
