"""Where things are, and how much of the machine tests may use."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
PYTHON = ROOT / ".deps/python/bin/python3"
REPORTS = ROOT / "build/reports"  # JUnit files of the last run, and what each test has cost
WORKER_MIB = 2048  # a program test has up to four ranks of 200 MB, and Python's DDP beside them takes three times that


def cores():
    return len(os.sched_getaffinity(0))


def shell(text, *words):
    """What a line of bash prints that may call the functions of scripts/common.sh."""
    return subprocess.run(["bash", "-ec", f'source "$0/scripts/common.sh"; {text}', str(ROOT), *words], check=True,
                          capture_output=True, text=True, cwd=ROOT).stdout


def workers():
    """How many program tests at once: most wait more than they compute."""
    wanted = os.environ.get("LOCKSTEP_TEST_WORKERS")
    return max(1, int(wanted) if wanted else min(2 * cores(), 32, int(shell("memory_left")) // WORKER_MIB))
