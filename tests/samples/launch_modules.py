"""Prints the modules that a program loads by ``import silo``, and those that it loads until its first launch.

``python launch_modules.py BUNDLE DEVICE`` prints both as JSON; DEVICE is cpu, or cuda on a stub of the driver.
"""

import sys

before = set(sys.modules)
import silo  # noqa: E402

imported = set(sys.modules) - before
device = sys.argv[2]
x, y, out = (silo.Buffer((1001,), "float32", device=device) for _ in range(3))
silo.load(sys.argv[1], trust=device == "cpu").add(x, y, out, 1001)
launched = set(sys.modules) - before

import json  # noqa: E402

print(json.dumps({"import": sorted(imported), f"launch on {device}": sorted(launched)}))
