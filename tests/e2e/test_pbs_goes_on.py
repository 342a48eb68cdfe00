"""PBS jobs that end early: who stops them, who goes on, and what a later start finds."""

import json
import signal

import pytest
from cluster_kit import ENDLESS, at_once, digests, first_steps, has_to_stop_now, last_checkpoint
from cluster_kit import metrics, runs, told, wait_at
from cluster_kit import reference, site, wait_at_step  # noqa: F401  (fixtures)
from conftest import run_process
from pbs_kit import LASTING_SHELL, SCRIPTS, ended, fields, log_file, log_of, next_job
from pbs_kit import pbs, stories  # noqa: F401  (fixtures)
from process_kit import wait_for

pytestmark = pytest.mark.about("job_scripts")


def assert_saved_where_it_stopped(run):
    """At any step, also at one between two that are logged."""
    step = json.loads((run / "status.json").read_text())["step"]
    assert last_checkpoint(run).stem == f"step-{step:08}"
    assert step - metrics(run)[-1]["step"] in (0, 1)  # log_every is 2


def tell(desk, job, *command):
    """A command of PBS about a job that is in its first steps, and does no more before it hears of it."""
    first_steps(desk.work)
    told(desk.lab, f"PBS_JOBID={job}", [*command, job], desk.work)


@pytest.mark.mpi
@pytest.mark.full  # a minute; test_slurm_goes_on.py has a time limit
@at_once
def test_the_walltime_stops_it_early_and_a_fresh_qsub_goes_on(desk):
    """The first one's ranks are held at a step until the time to stop has come."""
    sets = "train.max_steps=40 checkpoint.before_deadline=105s"
    wait_at(desk.work, 6)
    job = desk.qsub("-l", "walltime=00:02:00", CONFIG="quick.yaml", SET=sets, LOCKSTEP_MAX_RESTARTS="40")
    has_to_stop_now(desk.lab, f"PBS_JOBID={job}", desk.work, log_file(desk.work, job), limit=120, lead=105)
    assert ended(desk.lab, job) == 75, log_of(desk.work, job)
    assert "restart 1 of at most 40" in log_of(desk.work, job) and "job killed: walltime" not in log_of(desk.work, job)
    while (status := ended(desk.lab, job := next_job(desk.lab, job))) == 75:  # a slow machine needs more of them
        pass
    assert status == 0
    assert len(runs(desk.work)) == 1
    assert digests(desk.lockstep, last_checkpoint(runs(desk.work)[0]), run_process) == desk.reference(
        2, "gloo", "--set", "train.max_steps=40")


@at_once
def test_a_task_of_an_array_goes_on_alone(desk):
    """Its fresh qsub is one job with the task's own settings, not the array again."""
    (desk.work / "settings").write_text("train.max_steps=120\ncheckpoint.every_steps=5\noptim.betas=[0.8, 0.9]\n"
                                        "launch.timeout=600s")  # one waits for the other
    wait_at(desk.work, 6)
    job = desk.qsub(*LASTING_SHELL, "-J", "2-3", script=str(SCRIPTS / "sweep.pbs"), CONFIG="quick.yaml", SET="@settings")
    number = int(job.split("[")[0])
    wait_for(lambda: (desk.work / "runs").is_dir() and len(runs(desk.work)) == 2, what="both tasks")
    tell(desk, f"{number}[3].lab", "qsig", "-s", "USR1")
    assert [ended(desk.lab, f"{number}[{task}].lab") for task in (2, 3)] == [0, 75]
    assert ended(desk.lab, next_job(desk.lab, job)) == 0
    assert {r.name for r in runs(desk.work)} == {"sweep-lr0.01", "sweep-lr0.003"}
    assert all(metrics(r)[-1]["step"] == 120 for r in runs(desk.work))


def long_enough(steps=120, **more):
    return {"CONFIG": "quick.yaml", "SET": f"train.max_steps={steps} checkpoint.every_steps=50", **more}


@at_once
def test_qdel_leaves_a_checkpoint_and_no_other_job(desk):
    job = desk.qsub(**long_enough(ENDLESS))
    tell(desk, job, "qdel")
    assert ended(desk.lab, job) == 256 + signal.SIGTERM
    log = log_of(desk.work, job)
    assert "SIGTERM: the job was canceled" in log and "is not restarted" in log
    assert next_job(desk.lab, job) is None
    assert_saved_where_it_stopped(runs(desk.work)[0])


@at_once
def test_a_stop_on_request_ends_the_job_for_good(desk):
    job = desk.qsub(**long_enough(ENDLESS))
    first_steps(desk.work)
    run_process([desk.lockstep, "stop", runs(desk.work)[0]], check=True)
    assert ended(desk.lab, job) == 4
    assert "stopped on request and is not restarted" in log_of(desk.work, job)
    assert next_job(desk.lab, job) is None
    assert_saved_where_it_stopped(runs(desk.work)[0])
    assert not list(desk.work.glob(".lockstep-*"))


@at_once
def test_qrerun_goes_on_once_in_the_same_folder(desk):
    wait_at(desk.work, 6)
    job = desk.qsub(**long_enough())
    tell(desk, job, "qrerun")
    assert ended(desk.lab, job) == 0 and "submit again" not in log_of(desk.work, job), log_of(desk.work, job)
    assert fields(desk.lab, job)["run_count"] == "2" and next_job(desk.lab, job) is None
    assert len(runs(desk.work)) == 1 and metrics(runs(desk.work)[0])[-1]["step"] == 120
    steps = [m["step"] for m in metrics(runs(desk.work)[0]) if m["event"] == "step"]
    assert steps == sorted(set(steps)), "it went back, or two jobs wrote"
