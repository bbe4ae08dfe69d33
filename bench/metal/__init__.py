"""What the emulator of Metal kernels takes."""
