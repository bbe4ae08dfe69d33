"""Quotas of control groups, over pretend files: the same for Python and for the C core."""

import shutil
import subprocess
from pathlib import Path

import pytest

from silo.settings import quota_threads

NATIVE = Path(__file__).parents[3] / "native" / "core"
PROGRAM = """
#include "cpu_quota.h"
#include <stdio.h>

int main(int count, char **words) {
    for (int i = 1; i < count; i++)
        printf("%d\\n", silo_cpu_quota(words[i]));
    return 0;
}
"""
V1 = "sys/fs/cgroup/cpu,cpuacct"
OWN = "proc/self/cgroup"
TREES = {
    "nothing": ({}, None),
    "no quota": ({OWN: "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
    "half a core": ({OWN: "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
    "whole cores": ({OWN: "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4),
    "two and a half": ({OWN: "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
    "of a group": ({OWN: "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "300000 100000\n"}, 3),
    "of the group around": (
        {
            OWN: "0::/a/b\n",
            "sys/fs/cgroup/a/b/cpu.max": "800000 100000\n",
            "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
        },
        2,
    ),
    "of a group outside": ({OWN: "0::/../../x\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
    "version 1": (
        {
            OWN: "5:memory:/m\n4:cpu,cpuacct:/docker/x\n",
            f"{V1}/docker/x/cpu.cfs_quota_us": "150000\n",
            f"{V1}/docker/x/cpu.cfs_period_us": "50000\n",
        },
        3,
    ),
    "version 1, within a container": (
        {
            OWN: "4:cpuacct,cpu:/docker/x\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "20000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        1,
    ),
    "version 1 without": (
        {
            OWN: "4:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        None,
    ),
    "both": (
        {
            OWN: "4:cpu:/\n0::/s\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "500000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/s/cpu.max": "700000 100000\n",
        },
        5,
    ),
    "no numbers": ({OWN: "0::/\nnot a line\n::\n", "sys/fs/cgroup/cpu.max": "many\n"}, None),
    "a period of nothing": ({OWN: "0::/\n", "sys/fs/cgroup/cpu.max": "50000 0\n"}, None),
    "another's quota": ({OWN: "3:cpuset:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "1\n"}, None),
}


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    made = {}
    for number, (name, (files, _)) in enumerate(TREES.items()):
        made[name] = tmp_path_factory.mktemp(f"tree{number}")
        for path, text in files.items():
            (made[name] / path).parent.mkdir(parents=True, exist_ok=True)
            (made[name] / path).write_text(text)
    return made


@pytest.mark.parametrize("name", TREES)
def test_the_quota_of_groups_in_whole_threads(trees, name):
    assert quota_threads(str(trees[name])) == TREES[name][1]


def test_the_c_core_reads_the_same(trees, tmp_path):
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    source = tmp_path / "print.c"
    source.write_text(PROGRAM)
    program = tmp_path / "print"
    sources = [str(source), str(NATIVE / "cpu_quota.c")]
    subprocess.run([compiler, "-std=c11", f"-I{NATIVE}", *sources, "-o", str(program)], check=True)
    said = subprocess.run([str(program), *map(str, trees.values())], capture_output=True, text=True, check=True).stdout
    assert [int(line) or None for line in said.split()] == [wanted for _, wanted in TREES.values()]
