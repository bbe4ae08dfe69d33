"""Device plug-in: Google's TPUs, through jax."""
