"""jax looks for a TPU where libtpu is installed, and asks the cloud it thinks it is in: not in tests."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
