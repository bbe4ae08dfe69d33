"""Running: binding, dispatch, buffers. What launches asks the native module through ``native`` alone."""
