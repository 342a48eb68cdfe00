"""What the tests of Slurm share: the lab, and its jobs."""

from datetime import datetime

import cluster_kit
import pytest
from cluster_kit import SO_LONG, SOURCE, play_at_once, start_lab
from process_kit import PATIENCE

DDP = str(SOURCE / "job_scripts/ddp.slurm")
LONG = (*SO_LONG, "--set", "checkpoint.every_steps=5")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = start_lab(tmp_path_factory.mktemp("slurm") / "lab", "slurm")
    yield lab
    lab.stop()


@pytest.fixture(scope="session")
def environment(lockstep, site):
    # the lab's Slurm counts 32 cores a node, whatever this machine has
    return {"LOCKSTEP_PROGRAM": str(lockstep), "LOCKSTEP_HOME": str(SOURCE), "LOCKSTEP_THREADS_PER_CORE": "1", **site}


@pytest.fixture
def sbatch(lab, work, environment):
    """sbatch(ARG..., env={}) -> job id, from the folder of submission."""
    def submit(*arguments, env=None):
        return lab.submit(*arguments, cwd=work, env={**environment, **(env or {})})
    return submit


class Desk(cluster_kit.Desk):
    def sbatch(self, *arguments, env=None):
        return self.lab.submit(*arguments, cwd=self.work, env={**self.environment, **(env or {})})


@pytest.fixture(scope="module")
def stories(request, lab, environment):
    yield from play_at_once(Desk, lab, environment, request)


def log_file(work, job, name="lockstep"):
    return work / f"{name}-{job}.out"


def log_of(work, job, name="lockstep"):
    return log_file(work, job, name).read_text()


def finished(lab, work, job, within=PATIENCE):
    """Waits for the job and insists that it succeeded."""
    state = lab.wait(job, within=within)
    assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), log_of(work, job)
    return state


def charged(lab, job):
    """Core-seconds of all starts of the job, as sacct's CPUTimeRAW counts them."""
    lines = [dict(word.split("=", 1) for word in line.split() if "=" in word)
             for line in (lab.folder / "completed").read_text().splitlines()]
    return sum(int(line["ProcCnt"]) * (datetime.fromisoformat(line["EndTime"]) - datetime.fromisoformat(line["StartTime"])).seconds
               for line in lines if line["JobId"] == job)
