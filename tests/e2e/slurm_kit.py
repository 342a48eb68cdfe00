"""What the tests of Slurm share: the lab, its jobs, and what the same training gives without it."""

import pytest
from cluster_kit import QUICK, SOURCE, digests, last_checkpoint, runs, start_lab
from conftest import cache_value, run_process
from process_kit import shared_library

DDP = str(SOURCE / "job_scripts/ddp.slurm")
LONG = ("--set", "train.max_steps=250", "--set", "checkpoint.every_steps=5")
FOUR_LONG = ("--set", "train.max_steps=80", "--set", "checkpoint.every_steps=5")  # for four ranks on two cores


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = start_lab(tmp_path_factory.mktemp("slurm") / "lab", "slurm")
    yield lab
    lab.stop()


@pytest.fixture
def environment(lockstep, site):
    # the lab's Slurm counts 32 cores a node, whatever this machine has
    return {"LOCKSTEP_PROGRAM": str(lockstep), "LOCKSTEP_HOME": str(SOURCE), "LOCKSTEP_THREADS_PER_CORE": "1", **site}


@pytest.fixture
def sbatch(lab, work, environment):
    """sbatch(ARG..., env={}) -> job id, from the folder of submission."""
    def submit(*arguments, env=None):
        return lab.submit(*arguments, cwd=work, env={**environment, **(env or {})})
    return submit


def log_of(work, job, name="lockstep"):
    return (work / f"{name}-{job}.out").read_text()


def finished(lab, work, job, within=90):
    """Waits for the job and insists that it succeeded."""
    state = lab.wait(job, within=within)
    assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), log_of(work, job)
    return state


@pytest.fixture(scope="module")
def nodes_of_two(build_dir, tmp_path_factory):
    """An environment in which the mpi backend takes every two ranks of a host for a node."""
    headers = cache_value(build_dir, "MPI_C_HEADER_DIR")
    library = shared_library(tmp_path_factory.mktemp("nodes"), "pretend_nodes.so",
                             SOURCE / "tests/e2e/peers/pretend_nodes.c", f"-I{headers}")
    return {"LD_PRELOAD": str(library), "TEST_RANKS_PER_NODE": "2"}


@pytest.fixture(scope="module")
def reference(lockstep, mpiexec, tmp_path_factory):
    """reference(world, backend, SET...): digests of the same training without Slurm."""
    known = {}

    def train(world, backend, *sets, env=None):
        key = (world, backend, sets, str(env))
        if key not in known:
            folder = tmp_path_factory.mktemp("reference")
            (folder / "quick.yaml").write_text(QUICK)
            run_process([mpiexec, "-n", world, lockstep, "train", "quick.yaml", "--set", f"launch.backend={backend}",
                         *sets], cwd=folder, env={"LOCKSTEP_HOME": str(SOURCE), **(env or {})}, timeout=120, check=True)
            known[key] = digests(lockstep, last_checkpoint(runs(folder)[0]), run_process)
        return known[key]
    return train
