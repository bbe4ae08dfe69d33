"""What launches from C and C++ cost, and what libsilo weighs: ``python -m bench.cpp``."""
