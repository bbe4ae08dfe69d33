"""Makes a test's compile worker use and keep objects (``kept_objects``): Python imports this at its start."""

import sys

if "silo.compile.worker" in sys.orig_argv:
    import importlib
    from pathlib import Path

    sys.path.append(str(Path(__file__).resolve().parents[1]))
    importlib.import_module("kept_objects").install()
