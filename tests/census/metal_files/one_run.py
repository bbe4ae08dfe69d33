"""``python -m tests.census.metal_files.one_run PROJECT KERNEL FILE [INCLUDE...]``: prints why a sample is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

from .reading import read
from .samples import find, run

if __name__ == "__main__":
    project, name, path, *include = sys.argv[1:]
    file = read(Path(path), tuple(map(Path, include)))
    print("\n".join(filter(None, (run(file, one) for one in find(project, Path(path)) if one.kernel == name))))
