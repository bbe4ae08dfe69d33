"""Running: binding, dispatch, buffers; the only user of the native module."""
