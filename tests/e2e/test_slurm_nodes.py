"""Slurm jobs whose nodes are taken: by a more urgent job, and by a power cut."""

import pytest
from cluster_kit import SO_LONG, digests, first_steps, last_checkpoint, runs
from cluster_kit import reference, site, work  # noqa: F401  (fixtures)
from conftest import run_process
from process_kit import wait_for
from slurm_kit import DDP, FOUR_LONG, LONG, log_of, finished
from slurm_kit import environment, lab, sbatch  # noqa: F401  (fixtures)

pytestmark = pytest.mark.about("job_scripts")


def test_preemption_lets_it_go_on(lab, sbatch, work, lockstep, reference):  # noqa: F811
    job = sbatch(DDP, "quick.yaml", *LONG)
    first_steps(work)
    urgent = lab.submit("--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=true", cwd=work)
    assert lab.wait(urgent)["JobState"] == "COMPLETED"
    finished(lab, work, job)
    assert lab.job(job)["Restarts"] == "1" and "restart 1 of at most 10" in log_of(work, job), log_of(work, job)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(2, "gloo", *SO_LONG)


def test_dead_node_is_named_and_the_requeued_job_resumes(lab, sbatch, work, lockstep, reference):  # noqa: F811
    job = sbatch("--nodes=2", "--ntasks-per-node=2", DDP, "quick.yaml", *FOUR_LONG)
    first_steps(work, 10)
    lab.kill_node("n2")
    try:
        wait_for(lambda: lab.job(job)["JobState"] != "RUNNING", what="the job to fail")
        assert "(host n2, " in log_of(work, job)
    finally:
        lab.boot_node("n2")
    # for a job's own srun on n1, too: it may have n2's old address in mind for a while
    both = ("sbatch", "--wait", "--nodes=2", "--output=/dev/null", "--wrap=srun true")
    wait_for(lambda: lab.run(*both, check=False).returncode == 0, what="n2 to come back")
    if lab.job(job)["JobState"] == "FAILED":
        lab.run("scontrol", "requeue", job)
    finished(lab, work, job)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(4, "gloo", *FOUR_LONG)
