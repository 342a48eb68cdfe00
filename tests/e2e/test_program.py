"""The program as a person meets it, and the harness that runs it."""

import time

import pytest


def test_a_run_that_hangs_is_ended_with_its_children(run):
    begin = time.monotonic()
    with pytest.raises(pytest.fail.Exception, match="still running"):
        run("bash", "-c", "trap '' TERM; set -m; sleep 60 & wait", timeout=1)
    assert time.monotonic() - begin < 30


def test_what_a_run_left_behind_is_named_and_ended(run):
    result = run("bash", "-c", "sleep 60 >/dev/null 2>&1 & exit 3")
    assert result.returncode == 3
    assert len(result.left_behind) == 1


def test_ranks_run_and_return_their_output(mpirun):
    result = mpirun(3, "bash", "-c", "echo here", check=True)
    assert result.stdout.splitlines() == ["here"] * 3


def test_no_launcher_leaks_into_a_test(run, monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "7")
    monkeypatch.setenv("RANK", "7")
    assert run("bash", "-c", "echo ${SLURM_PROCID:-}${RANK:-}none", check=True).stdout == "none\n"
