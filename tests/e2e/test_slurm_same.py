"""Jobs on a real two-node Slurm train as without it: each start, backend and layout, and beside a more urgent one."""

import pytest
from cluster_kit import SO_LONG, SOURCE, digests, first_steps, last_checkpoint, runs
from cluster_kit import reference, site, work  # noqa: F401  (fixtures)
from conftest import run_process
from slurm_kit import DDP, LONG, log_of, finished
from slurm_kit import environment, lab, sbatch  # noqa: F401  (fixtures)

pytestmark = pytest.mark.about("job_scripts")


@pytest.mark.full  # srun and gloo are in the scripts below
@pytest.mark.parametrize("start, backend", [("mpirun", "gloo"), ("srun", "mpi"), ("mpirun", "mpi")])
def test_same_parameters_as_without_slurm(start, backend, lab, sbatch, work, lockstep, reference):  # noqa: F811
    one_thread = ("--set", "train.threads=1")  # each rank has the two cores of a node
    job = sbatch("--nodes=2", "--ntasks-per-node=1", DDP, "quick.yaml", "--set", f"launch.backend={backend}", *one_thread,
                 env={"LOCKSTEP_START": start})
    finished(lab, work, job)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(2, backend, *one_thread)


@pytest.mark.mpi
def test_srun_without_pmi(lab, sbatch, work, lockstep, reference):  # noqa: F811
    job = sbatch("--nodes=2", DDP, "quick.yaml", env={"LOCKSTEP_SRUN_MPI": "none"})
    finished(lab, work, job)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(4, "gloo")


@pytest.mark.parametrize("script, nodes", [pytest.param("ddp_single_node", 1, marks=pytest.mark.full), ("ddp_multi_node", 2)])
def test_the_scripts_of_one_and_of_two_nodes(script, nodes, lab, sbatch, work, lockstep, reference):  # noqa: F811
    job = sbatch(str(SOURCE / f"job_scripts/{script}.slurm"), "quick.yaml")
    finished(lab, work, job)
    assert f"{2 * nodes} ranks on {nodes} node{'s' * (nodes > 1)}, 1 core per rank" in log_of(work, job)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(2 * nodes, "gloo")


def test_a_heterogeneous_job_trains_on_all_its_components(lab, sbatch, work, lockstep, reference):  # noqa: F811
    job = sbatch("--nodes=1", "--ntasks=1", "--mincpus=1", ":", "--nodes=1", "--ntasks=2", DDP, "quick.yaml", env={"LOCKSTEP_HOME": ""})
    finished(lab, work, job)
    assert "3 ranks on 2 nodes, 1 core per rank" in log_of(work, job)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(3, "gloo")


def test_preemption_lets_it_go_on(lab, sbatch, work, lockstep, reference):  # noqa: F811
    job = sbatch(DDP, "quick.yaml", *LONG)
    first_steps(work)
    urgent = lab.submit("--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=true", cwd=work)
    assert lab.wait(urgent)["JobState"] == "COMPLETED"
    finished(lab, work, job)
    assert lab.job(job)["Restarts"] == "1" and "restart 1 of at most 10" in log_of(work, job), log_of(work, job)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(2, "gloo", *SO_LONG)
