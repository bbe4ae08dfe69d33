"""The kind ``cute``: CuTe DSL kernels. ``front`` reads them; the other modules compile them with the installed DSL."""
