"""Slurm jobs that end early: who stops them, who goes on, and what a later start finds."""

import json

import pytest
from cluster_kit import ENDLESS, SO_LONG, SOURCE, at_once, digests, first_steps, has_to_stop_now, last_checkpoint
from cluster_kit import metrics, runs, told, wait_at
from cluster_kit import reference, site, wait_at_step  # noqa: F401  (fixtures)
from conftest import run_process
from process_kit import wait_for
from slurm_kit import DDP, LONG, charged, finished, log_file, log_of
from slurm_kit import environment, lab, stories  # noqa: F401  (fixtures)

pytestmark = pytest.mark.about("job_scripts")


def tell(desk, job, *command, steps=6, word=None):
    """A command of Slurm about a job that is in its first steps, and does no more before it hears of it."""
    first_steps(desk.work, steps)
    told(desk.lab, word or f"SLURM_JOB_ID={job}", [*command, job], desk.work)


def ends_as_without_slurm(desk, job):
    finished(desk.lab, desk.work, job)
    (run,) = runs(desk.work)
    assert digests(desk.lockstep, last_checkpoint(run), run_process) == desk.reference(2, "gloo", *SO_LONG)


@pytest.mark.mpi
@at_once
def test_usr1_requeues_and_resumes_exactly(desk):
    wait_at(desk.work, 6)
    # submitted from within an array's task, which it must leave alone, and with part of the environment
    job = desk.sbatch(DDP, "quick.yaml", *LONG, env={"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "5",
                                                     "SBATCH_EXPORT": ",".join([*desk.environment, "PATH"])})
    tell(desk, job, "scancel", "-s", "USR1")
    ends_as_without_slurm(desk, job)
    assert desk.lab.job(job)["Restarts"] == "1", log_of(desk.work, job)
    assert "restart 1 of at most 10" in log_of(desk.work, job)
    cost = json.loads((runs(desk.work)[0] / "status.json").read_text())["cost"]
    seconds = 10  # on a busy machine a job ends late after its last line
    assert abs(cost["core_seconds"] - charged(desk.lab, job)) < 2 * seconds * cost["cores"] and cost["cores"] == 2
    assert cost["peak_memory"] > 1e8 and cost["queue_seconds"] >= 0


@pytest.mark.parametrize("words, env", [(["--export=NONE"], {}), *(pytest.param(*row, marks=pytest.mark.full) for row in (
    (["--export=NIL"], {}), ([], {"SBATCH_EXPORT": "NONE"})))])
@at_once
def test_without_the_environment_of_submission_it_requeues_and_resumes(desk, words, env):
    """The script has what the job needs, and the ranks get what they need as arguments."""
    wait_at(desk.work, 6)
    desk.lab.run(desk.lockstep, "render", "slurm", "quick.yaml", *LONG, "--out", "job", cwd=desk.work, env=desk.environment)
    job = desk.lab.submit(*words, "job", cwd=desk.work, env=env)
    tell(desk, job, "scancel", "-s", "USR1")
    ends_as_without_slurm(desk, job)
    assert desk.lab.job(job)["Restarts"] == "1", log_of(desk.work, job)


@pytest.mark.parametrize("minutes, lead, words", [
    (2, 105, ["--set", "checkpoint.before_deadline=105s"]), pytest.param(1, 30, [], marks=pytest.mark.full)])  # Slurm warns at once
@at_once
def test_time_limit_requeues_before_it_strikes(desk, minutes, lead, words):
    """The ranks are held at a step until the time to stop has come: a busy machine has the rest for the stop."""
    wait_at(desk.work, 6)
    job = desk.sbatch(f"--time={minutes}", DDP, "quick.yaml", *LONG, *words)
    has_to_stop_now(desk.lab, f"SLURM_JOB_ID={job}", desk.work, log_file(desk.work, job), limit=60 * minutes, lead=lead)
    wait_for(lambda: int(desk.lab.job(job)["Restarts"]) >= 1, what="the requeue")
    assert "SIGTERM" not in log_of(desk.work, job), log_of(desk.work, job)
    desk.lab.run("scontrol", "update", f"JobId={job}", "TimeLimit=30")
    ends_as_without_slurm(desk, job)
    assert desk.lab.job(job)["Restarts"] == "1", log_of(desk.work, job)


@at_once
def test_requeue_by_the_operator_resumes(desk):
    wait_at(desk.work, 20)
    job = desk.sbatch(DDP, "quick.yaml", *LONG)
    tell(desk, job, "scontrol", "requeue", steps=20)
    ends_as_without_slurm(desk, job)
    log = log_of(desk.work, job)
    assert "Slurm restarts this job" in log and "submit again" not in log, log


@pytest.mark.mpi
@pytest.mark.parametrize("start", ["srun", pytest.param("mpirun", marks=pytest.mark.full)])
@at_once
def test_a_cancelled_job_checkpoints_and_stays_cancelled(desk, start):
    job = desk.sbatch(DDP, "quick.yaml", "--set", f"train.max_steps={ENDLESS}", env={"LOCKSTEP_START": start})
    tell(desk, job, "scancel")
    state = desk.lab.wait(job)
    assert (state["JobState"], state["Restarts"]) == ("CANCELLED", "0"), log_of(desk.work, job)
    assert "is not restarted" in log_of(desk.work, job)
    assert run_process([desk.lockstep, "status", runs(desk.work)[0]]).returncode == 75


@pytest.mark.mpi
@at_once
def test_a_sigterm_for_the_script_alone_is_a_stop_that_goes_on(desk):
    """As `sbatch --signal=B:TERM@60` sends it: an srun that gets one kills its ranks."""
    wait_at(desk.work, 6)
    job = desk.sbatch(DDP, "quick.yaml", *SO_LONG, "--set", "checkpoint.every_steps=1000", env={"LOCKSTEP_START": "srun"})
    tell(desk, job, "scancel", "--batch", "-s", "TERM")
    finished(desk.lab, desk.work, job)
    log = log_of(desk.work, job)
    assert desk.lab.job(job)["Restarts"] == "1" and "restart 1 of at most 10" in log, log
    (run,) = runs(desk.work)
    steps = [m["step"] for m in metrics(run) if m["event"] == "step"]
    assert steps == sorted(set(steps)) and steps[-1] == 120


@at_once
def test_a_task_of_an_array_goes_on_alone(desk):
    wait_at(desk.work, 6)
    words = (*LONG, "--set", "launch.timeout=600s")  # one waits for the other
    job = desk.sbatch("--array=2-3", str(SOURCE / "job_scripts/sweep.slurm"), "quick.yaml", *words)
    wait_for(lambda: (desk.work / "runs").is_dir() and len(runs(desk.work)) == 2, what="both tasks")
    tell(desk, f"{job}_3", "scancel", "-s", "USR1", word=f"SLURM_ARRAY_JOB_ID={job}")
    restarts = [desk.lab.wait(f"{job}_{task}")["Restarts"] for task in (2, 3)]
    assert restarts == ["0", "1"]
    assert {r.name for r in runs(desk.work)} == {"sweep-lr0.01", "sweep-lr0.003"}
