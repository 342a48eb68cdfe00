"""Who am I, asked of the program itself: under mpirun, and in environments set by hand."""

import json

import pytest

from train_kit import PIMA, write_config

pytestmark = pytest.mark.about("launch", "whoami", "mpi")

TORCHRUN = {"RANK": 2, "WORLD_SIZE": 4, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 1}


@pytest.mark.mpi
def test_json_of_all_ranks(mpirun, mpi, lockstep):
    report = json.loads(mpirun(3, lockstep, "whoami", "--json", env={"CUDA_VISIBLE_DEVICES": ""}, check=True).stdout)
    assert report["schema"] == 1 and report["complete"] is True
    assert report["world"] == 3 and report["launcher"] == mpi.launcher and report["ends"] is None
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1, 2]
    assert [rank["local_rank"] for rank in report["ranks"]] == [0, 1, 2]
    assert len({rank["pid"] for rank in report["ranks"]}) == 3
    for rank in report["ranks"]:
        assert rank["device"] == "cpu"
        assert rank["threads"] == 1 and rank["because"]["threads"] == "OMP_NUM_THREADS=1"
        assert set(rank["because"]) >= {"rank", "world", "local_rank", "local_world", "node_rank", "nodes", "host",
                                        "launcher", "scheduler", "device", "threads"}


def test_without_its_peers_a_process_speaks_for_itself(run, lockstep, free_port):
    # nobody answers at that address, so this also shows that nobody hangs
    env = {**TORCHRUN, "PATH": "/usr/bin:/bin", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "LOCKSTEP_JOIN_TIMEOUT": 2}
    result = run(lockstep, "whoami", "--json", env=env)
    assert result.returncode == 1 and "error: 1 of 4 ranks answered" in result.stderr
    report = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert report["complete"] is False and report["launcher"] == "torchrun"
    (seat,) = report["ranks"]
    assert (seat["rank"], seat["world"]) == (2, 4)
    assert (seat["local_rank"], seat["local_world"], seat["node_rank"]) == (0, 2, 1)
    assert "cannot reach the other ranks" in seat["warnings"][-1]


def test_train_starts_its_own_ranks(run, mpirun, lockstep, tmp_path):
    words = [lockstep, "train", write_config(tmp_path, PIMA), "--ranks", 3, "--set", "task.class_weights=balanced"]
    result = run(*words, cwd=tmp_path, check=True)
    assert "pima on 3 ranks" in result.stderr and "finished all epochs" in run(lockstep, "status", "runs/pima", cwd=tmp_path).stdout
    assert "(balanced): class 0: 0.767, class 1: 1.435" in result.stderr and "374 in insulin (now 122)" in result.stderr
    inside = mpirun(2, *words, cwd=tmp_path)
    assert inside.returncode == 2 and inside.stderr.count("omit --ranks") == 1, inside.output
    for mistyped in (["--ranks", 65000], ["--set", "train.as_world=65000"]):  # it would take all memory
        result = run(*words[:3], *mistyped, "--dry-run", cwd=tmp_path)
        assert result.returncode == 2 and "memory" in result.stderr and result.stderr.count("error:") == 1, result.output


def test_an_error_of_all_ranks_is_said_where_rank_0_starts_late(mpirun, mpi, lockstep):
    """A busy machine does that: the launcher ends all when the first rank has left."""
    late = f'[ "${mpi.rank}" = 0 ] && sleep 2; exec "$0" "$@"'
    result = mpirun(3, "sh", "-c", late, lockstep, "whoami", "--launcher", "nonsense")
    assert result.returncode == 2 and result.stderr.count("unknown launcher 'nonsense'") == 1, result.output


@pytest.mark.mpi
def test_one_failed_rank_speaks_and_ends_the_others(mpirun, mpi, lockstep):
    # rank 2 alone has a broken environment, found after all have joined; the others wait for it
    script = f'[ "${mpi.rank}" = 2 ] && export OMP_NUM_THREADS=many; exec {lockstep} whoami'
    result = mpirun(4, "sh", "-c", script)
    assert result.returncode == 2
    assert result.stderr.count("OMP_NUM_THREADS=many is not a number") == 1
    assert "rank 2 of 4" in result.stderr
    assert result.left_behind == []
    assert result.stdout == ""
