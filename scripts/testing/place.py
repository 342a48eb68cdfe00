"""Where things are, and how much of the machine tests may use."""

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
PYTHON = ROOT / ".deps/python/bin/python3"
REPORTS = ROOT / "build/reports"  # JUnit files of the last run, and what each test has cost
WORKER_BYTES = 2 << 30  # a program test has up to four ranks of 200 MB, and Python's DDP beside them takes three times that


def cores():
    return len(os.sched_getaffinity(0))


def memory_left():
    """Bytes: the machine's, or what the control group of a batch job leaves."""
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    left = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    groups = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    for name in (line[3:].strip("/") for line in groups if line.startswith("0::")):
        group = pathlib.Path("/sys/fs/cgroup", name)
        for folder in [group, *group.parents][:len(pathlib.Path(name).parts)]:
            try:
                left.append(int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text()))
            except (OSError, ValueError):  # no such file, or "max"
                continue
    return min(left)


def workers():
    """How many program tests at once: most wait more than they compute."""
    wanted = os.environ.get("LOCKSTEP_TEST_WORKERS")
    return max(1, int(wanted) if wanted else min(2 * cores(), 32, memory_left() // WORKER_BYTES))
