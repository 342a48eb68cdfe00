"""Who am I, asked of the program itself: under mpirun, and in environments set by hand."""

import json
import pathlib
import signal
import subprocess

import pytest
from conftest import OPEN_MPI, members
from process_kit import PATIENCE, shared_library, wait_for

pytestmark = pytest.mark.about("launch", "whoami", "mpi")

TORCHRUN = {"RANK": 2, "WORLD_SIZE": 4, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 1}
SBATCH = {"SLURM_JOB_ID": 42, "SLURM_NTASKS": 4, "SLURM_PROCID": 0, "SLURM_LOCALID": 0, "SLURM_NODEID": 0,
          "SLURM_JOB_NUM_NODES": 2, "SLURM_TASKS_PER_NODE": "2(x2)"}
SRUN = {**SBATCH, "SLURM_PROCID": 3, "SLURM_LOCALID": 1, "SLURM_NODEID": 1, "SLURM_STEP_NUM_TASKS": 4,
        "SLURM_STEP_NUM_NODES": 2, "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_ID": 0}
NO_SCHEDULER = {"PATH": "/usr/bin:/bin"}


@pytest.mark.mpi
def test_a_table_of_all_ranks_sorted(mpirun, mpi, lockstep):
    result = mpirun(4, lockstep, "whoami", check=True)
    assert result.stdout.startswith(f"4 ranks on 1 node, launcher {mpi.launcher}")
    table = result.stdout.split("\nwhy\n")[0].splitlines()[3:]
    assert [line.split()[0] for line in table] == ["0", "1", "2", "3"]
    assert max(len(line) for line in result.stdout.splitlines()) <= 100
    assert "MPI_Comm_rank" in result.stdout
    assert result.stdout.count("launcher") == 2  # the headline and one reason: printed once for the job


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


def test_alone(run, lockstep):
    report = json.loads(run(lockstep, "whoami", "--json", check=True).stdout)
    assert report["world"] == 1 and report["launcher"] == "none" and report["complete"] is True


@pytest.mark.mpi
def test_threads_are_a_share_of_the_cores(mpirun, lockstep):
    report = json.loads(mpirun(2, lockstep, "whoami", "--json", env={"OMP_NUM_THREADS": None}, check=True).stdout)
    for rank in report["ranks"]:
        assert 1 <= rank["threads"]
        assert "allowed core" in rank["because"]["threads"]
    alone = json.loads(mpirun(1, lockstep, "whoami", "--json", env={"OMP_NUM_THREADS": None}, check=True).stdout)
    assert sum(rank["threads"] for rank in report["ranks"]) <= max(2, 2 * alone["ranks"][0]["threads"])


@pytest.mark.parametrize("environment, launcher, rank, world, local_rank, local_world, node_rank", [
    (TORCHRUN, "torchrun", 2, 4, 0, 2, 1),
    (SRUN, "slurm", 3, 4, 1, 2, 1),
    pytest.param({"FLUX_TASK_RANK": 1, "FLUX_JOB_SIZE": 2, "FLUX_TASK_LOCAL_ID": 1, "FLUX_JOB_NNODES": 1},
                 "flux", 1, 2, 1, 2, 0, marks=pytest.mark.full),
])
def test_without_its_peers_a_process_speaks_for_itself(run, lockstep, free_port, environment, launcher, rank, world, local_rank,
                                                    local_world, node_rank):
    # nobody answers at that address, so this also shows that nobody hangs
    env = {**environment, **NO_SCHEDULER, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    result = run(lockstep, "whoami", "--json", env=env)
    assert result.returncode == 1 and f"error: 1 of {world} ranks answered" in result.stderr
    report = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert report["complete"] is False and report["launcher"] == launcher
    (seat,) = report["ranks"]
    assert (seat["rank"], seat["world"]) == (rank, world)
    assert (seat["local_rank"], seat["local_world"], seat["node_rank"]) == (local_rank, local_world, node_rank)
    assert "could not be asked" in seat["warnings"][-1]


def test_lines_of_a_lone_process_carry_its_rank(run, lockstep):
    text = run(lockstep, "whoami", env={"RANK": 1, "WORLD_SIZE": 2}).stdout
    assert text
    rank = 1
    assert all(line.startswith(f"[rank {rank}] ") for line in text.splitlines())


def test_ranks_without_mpi_make_one_table(start, lockstep, free_port):
    port = free_port()
    ranks = [start(lockstep, "whoami", "--json", stdout=subprocess.PIPE, text=True,
                   env={"RANK": rank, "WORLD_SIZE": 3, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 3,
                        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
             for rank in (2, 0, 1)]
    outputs = [rank.communicate(timeout=PATIENCE)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0]
    assert outputs[0] == outputs[2] == ""  # rank 0 alone prints
    report = json.loads(outputs[1])
    assert report["complete"] is True
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1, 2]
    assert len({rank["pid"] for rank in report["ranks"]}) == 3


@pytest.mark.parametrize("environment, words", [
    (SBATCH, ["SLURM_NTASKS=4", "srun or mpirun", "--launcher none"]),
    ({"RANK": 0}, ["RANK=0 is set but WORLD_SIZE is not", "torchrun"]),
    ({"RANK": 2, "WORLD_SIZE": 2}, ["RANK=2 lies outside WORLD_SIZE=2"]),
    ({"RANK": "two", "WORLD_SIZE": 2}, ["RANK=two", "not a number"]),
    ({"RANK": 0, "WORLD_SIZE": 99999999999}, ["WORLD_SIZE=99999999999", "not a number"]),
    ({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "2(x9"}, ["malformed task counts"]),
    # a PMI that no library here answers: every rank is told "0 of 1"
    ({"PMI_RANK": 0, "PMI_SIZE": 4}, ["4 processes would each be rank 0 of 1", "mpirun that belongs to"]),
])
def test_an_environment_that_cannot_be_is_refused(run, lockstep, environment, words):
    result = run(lockstep, "whoami", env={**environment, **NO_SCHEDULER})
    assert result.returncode == 2, result.output
    assert result.stdout == ""
    for word in words + ["where:", "to do:"]:
        assert word in result.stderr


def test_a_pbs_script_that_forgot_mpirun(run, lockstep, tmp_path):
    nodes = tmp_path / "nodes"
    nodes.write_text("n1\nn1\nn2\nn2\n")
    pbs = {"PBS_JOBID": "7.server", "PBS_NODEFILE": nodes, "PBS_NODENUM": 0, "NCPUS": 2, **NO_SCHEDULER}
    result = run(lockstep, "whoami", env=pbs)
    assert result.returncode == 2
    assert "4 lines for 2 hosts" in result.stderr and "mpirun" in result.stderr
    alone = run(lockstep, "whoami", "--launcher", "none", env=pbs, check=True)
    assert "pbs job 7.server" in alone.stdout


@pytest.mark.mpi
def test_mpirun_inside_an_sbatch_script(mpirun, mpi, lockstep):
    inside = {**SBATCH, "SLURM_STEP_NUM_TASKS": 2, "SLURM_STEP_NUM_NODES": 2, **NO_SCHEDULER,
              "OMPI_MCA_ras": "^slurm", "OMPI_MCA_plm": "^slurm"}
    report = json.loads(mpirun(2, lockstep, "whoami", "--json", env=inside, check=True).stdout)
    assert report["launcher"] == mpi.launcher and report["scheduler"] == "slurm" and report["job_id"] == "42"
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1]


@pytest.mark.mpi
def test_an_error_of_all_ranks_is_said_once(mpirun, lockstep):
    result = mpirun(4, lockstep, "whoami", "--launcher", "nonsense")
    assert result.returncode == 2
    assert result.stderr.count("unknown launcher 'nonsense'") == 1
    result = mpirun(4, lockstep, "train", "configs/pima.yaml", "--set", "launch.launcher=nonsense")
    assert result.returncode == 2
    assert result.stderr.count("unknown launcher 'nonsense'") == 1 and "where: --set launch.launcher" in result.stderr
    result = mpirun(4, lockstep, "whoami", "--device", "tpu")
    assert result.returncode == 2
    assert result.stderr.count("unknown device 'tpu'") == 1


def test_an_error_of_all_ranks_is_said_where_rank_0_starts_late(mpirun, mpi, lockstep):
    """A busy machine does that: the launcher ends all when the first rank has left."""
    late = f'[ "${mpi.rank}" = 0 ] && sleep 2; exec "$0" "$@"'
    result = mpirun(3, "sh", "-c", late, lockstep, "whoami", "--launcher", "nonsense")
    assert result.returncode == 2 and result.stderr.count("unknown launcher 'nonsense'") == 1, result.output


def test_more_ranks_than_gpus_is_an_error_after_the_table(mpirun, lockstep):
    result = mpirun(2, lockstep, "whoami", "--device", "cuda", env={"CUDA_VISIBLE_DEVICES": ""})
    assert result.returncode == 2
    assert "rank 0 sees no GPU" in result.stderr and "none" in result.stdout
    assert result.stderr.count("to do:") == 1


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory):
    """A libcuda.so.1 of two GPUs, for hosts without one."""
    source = "int cuInit(unsigned f) { return f; }\nint cuDeviceGetCount(int *n) { *n = 2; return 0; }\n"
    return shared_library(tmp_path_factory.mktemp("driver"), "libcuda.so.1", source).parent


@pytest.mark.mpi
def test_each_rank_takes_its_own_gpu(mpirun, lockstep, fake_driver):
    env = {"LD_LIBRARY_PATH": fake_driver}
    report = json.loads(mpirun(2, lockstep, "whoami", "--json", env=env, check=True).stdout)
    assert [rank["device"] for rank in report["ranks"]] == ["cuda:0", "cuda:1"]
    result = mpirun(3, lockstep, "whoami", env=env)
    assert result.returncode == 2
    assert "rank 2 is local rank 2 of 3 and sees 2 visible GPUs" in result.stderr


def test_the_scheduler_tells_when_the_job_ends(run, lockstep, tmp_path):
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho 2030-01-01T10:30:00\n")
    squeue.chmod(0o755)
    job = {"SLURM_JOB_ID": 42, "SLURM_NTASKS": 1, "PATH": f"{tmp_path}:/usr/bin:/bin", "TZ": "UTC"}
    report = json.loads(run(lockstep, "whoami", "--json", env=job, check=True).stdout)
    assert report["ends"] == "2030-01-01T10:30:00Z"


@pytest.mark.mpi
def test_a_dead_rank_takes_the_job_down(mpirun, mpi, lockstep):
    # rank 1 dies before it says who it is; the others wait for it in the gathering
    script = f'[ "${mpi.rank}" = 1 ] && kill -9 $$; exec {lockstep} whoami'
    result = mpirun(3, "sh", "-c", script)
    assert result.returncode != 0 and (mpi is not OPEN_MPI or result.returncode == 128 + signal.SIGKILL)
    assert result.left_behind == []


@pytest.mark.mpi
def test_a_rank_that_never_joins_is_given_up(mpirun, mpi, lockstep):
    # rank 1 lives and never calls MPI_Init
    script = f'[ "${mpi.rank}" = 1 ] && exec sleep 600; exec {lockstep} whoami'
    result = mpirun(2, "sh", "-c", script, env={"LOCKSTEP_JOIN_TIMEOUT": 2})
    assert result.returncode == 1
    assert "not every rank arrived" in result.stderr


def names_of(pids):
    found = set()
    for pid in pids:
        try:
            found.add(pathlib.Path(f"/proc/{pid}/comm").read_text().strip())
        except OSError:  # it has just ended
            continue
    return found


@pytest.mark.mpi
def test_interrupting_whoami_leaves_nothing(start, mpiexec, mpi, lockstep):
    script = f'[ "${mpi.rank}" = 1 ] && exec sleep 600; exec {lockstep} whoami'
    process = start(mpiexec, "-n", "2", "sh", "-c", script, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: "lockstep" in names_of(members(process)), what="rank 0 to begin")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) != 0


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
