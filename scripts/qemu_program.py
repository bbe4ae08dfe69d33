"""The program that ``scripts/qemu_aarch64`` runs on aarch64: ``qemu_program.py BUNDLE...``; exits with 1 on any error.

It starts no other process, because qemu emulates only this one.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import silo
from silo.commands.bundle_description import describe_bundle, verify_bundle
from silo.commands.examine_machine import examine


def main(paths: list[str]) -> int:
    """Examine the machine, then open, describe and run each bundle; return the exit status."""
    machine = platform.machine()
    print(f"silo {silo.__version__} on {machine}, Python {platform.python_version()}: {silo.device('cpu').arch}")
    wrong = [] if machine == "aarch64" else [f"this is {machine}"]
    needed = {one.part: one for one in examine() if one.part in ("native module", "device cpu")}
    wrong += [f"doctor: {one.part} is {one.state}: {one.detail}" for one in needed.values() if one.state != "ok"]
    if len(needed) != 2:
        wrong.append(f"doctor knows {sorted(needed)}")
    for path in map(Path, paths):
        wrong += [f"{path.name}: {problem}" for problem in verify_bundle(path)]
        targets = {row.target for row in describe_bundle(path).variants}
        print(f"{path.name}: code for {', '.join(sorted(targets))}")
        results = silo.run(path, trust=True)
        print(results)
        wrong += [f"{path.name}: {row.kernel} {row.case}: {row.message}" for row in results if not row.ok]
        if not results:
            wrong.append(f"{path.name}: no case was run")
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
