"""Google's TPUs, through jax."""
