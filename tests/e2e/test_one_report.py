"""One report: what goes wrong is said once for the job, in words that no terminal obeys."""

import json
import os

import pytest
from train_kit import PIMA, sets, write_config

pytestmark = pytest.mark.about("launch", "cli")

ESCAPE = "\x1b[31mred\x1b]0;title\x07\x9b"


@pytest.mark.mpi
def test_an_environment_that_is_wrong_for_all_is_said_once(mpirun, lockstep):
    result = mpirun(4, lockstep, "whoami", env={"RANK": "two", "WORLD_SIZE": 2}, quiet=True)
    assert result.returncode == 2
    assert result.stderr.count("RANK=two is not a number") == 1 and result.stderr.count("hint:") == 1


def test_a_failed_join_shows_no_stack_of_libtorchs(run, lockstep, tmp_path, free_port):
    config = write_config(tmp_path, PIMA)
    env = {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1",
           "MASTER_PORT": free_port()}
    result = run(lockstep, "train", config, *sets(launch__join_timeout="2s"), env=env, cwd=tmp_path)
    assert result.returncode == 1
    for word in ("frame #", "Exception raised from", "c10d", "socket.cpp"):
        assert word not in result.stderr, result.stderr
    assert result.stderr.count("error: ") == 1 and "hint:" in result.stderr


TOO_MANY = os.cpu_count() + 1  # threads: more than any rank's share, and few to wake


@pytest.mark.mpi
def test_warnings_of_the_start_are_said_once_for_the_job(mpirun, mpi, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    script = f'[ "${mpi.rank}" = 2 ] && export OMP_NUM_THREADS={TOO_MANY}; exec "$0" "$@"'
    result = mpirun(3, "sh", "-c", script, lockstep, "train", config, *sets(train__epochs=1), cwd=tmp_path, check=True)
    assert result.stderr.count(f"warning: rank 2: OMP_NUM_THREADS={TOO_MANY} is more than this rank's share") == 1


def test_no_escape_code_reaches_the_terminal(run, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    bad = tmp_path / f"bad{ESCAPE}.pt"
    bad.write_bytes(b"PK\x03\x04" + ESCAPE.encode())
    (tmp_path / "status.json").write_text(json.dumps({"state": "failed", "reason": ESCAPE, "host": ESCAPE}))
    shown = []
    for words, env in (
            (["train", config], {"RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": ESCAPE, "MASTER_PORT": ESCAPE}),
            (["whoami"], {"PBS_JOBID": ESCAPE, "HOSTNAME": ESCAPE, "OMP_NUM_THREADS": "4,\x1b[31m"}),
            (["train", ESCAPE], {}), (["inspect", bad], {}), (["status", "."], {}),
            (["train", config, "--resume", ESCAPE], {})):
        result = run(lockstep, *words, env=env, cwd=tmp_path)
        if not result.output or any(code in result.output for code in ("\x1b", "\x07", "\x9b")):
            shown.append((words, env, result.output))
    assert not shown
