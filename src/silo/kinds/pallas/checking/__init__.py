"""``silo.check`` for Pallas kernels: jax interprets a TPU, with its memory, copies and semaphores."""
