"""``silo.check`` of Pallas kernels: jax interprets a TPU, with its memory, copies and semaphores."""
