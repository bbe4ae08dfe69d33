"""The cost of launches from C and C++, and the size of libsilo: ``python -m bench.cpp``."""
