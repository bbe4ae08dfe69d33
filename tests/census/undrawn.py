"""``undrawn.py SCRIPT [ARGUMENTS]``: a tutorial of Triton as it is, its benchmarks neither run nor drawn."""

import runpy
import sys

import triton.testing

if __name__ == "__main__":
    triton.testing.Mark.run = lambda *args, **kwargs: None
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
