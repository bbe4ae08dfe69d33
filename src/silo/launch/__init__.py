"""Running: binding, dispatch, buffers. Launch code calls the native module through ``native`` alone."""
