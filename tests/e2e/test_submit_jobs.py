"""lockstep submit: jobs submitted, followed through requeues, chained and swept, on Slurm and on the stand-in for PBS."""

import re

import pytest
from cluster_kit import first_steps, runs, start_lab, told, wait_at
from cluster_kit import site, wait_at_step  # noqa: F401  (fixtures)
from process_kit import PATIENCE, line_with
from submit_kit import submit, work  # noqa: F401  (fixtures)

pytestmark = pytest.mark.about("cluster", "submit", "cli")

LONG = ("--set", "train.max_steps=120", "--set", "checkpoint.every_steps=5")
SHORT = ("--set", "train.max_steps=4", "--set", "train.eval_every=1")


def first_on(scheduler, *others):
    """A test in the lab of this scheduler, and with --full in those of others."""
    labs = [scheduler, *(pytest.param(other, marks=pytest.mark.full) for other in others)]
    return pytest.mark.parametrize("lab", labs, indirect=True, scope="module")


@pytest.fixture(scope="module")
def lab(request, tmp_path_factory):
    lab = start_lab(tmp_path_factory.mktemp(request.param) / "lab", request.param)
    yield lab
    lab.stop()


def stop_early(lab, job, work):
    """The run is told to stop with a checkpoint, by its scheduler."""
    first_steps(work)
    command, name = ("scancel", "SLURM_JOB_ID") if lab.scheduler == "slurm" else ("qsig", "PBS_JOBID")
    told(lab, f"{name}={job}", [command, "-s", "USR1", job], work)


def ended(process, within=PATIENCE):
    out, err = process.communicate(timeout=within)
    return process.returncode, out, err


@first_on("slurm", "pbs")
def test_it_is_followed_through_a_requeue_to_its_end(lab, submit, work):  # noqa: F811
    wait_at(work, 6)
    process = submit(*LONG)
    job = line_with(process, process.stdout)
    stop_early(lab, job, work)
    status, out, err = ended(process)
    assert status == 0, out + err
    last = out.splitlines()[-1]
    assert re.search(rf"job \S+: done.* \({re.escape(str(runs(work)[0]))}\)", last), out
    assert "restart 1 of at most 10" in out and "Epoch 0" in out
    assert f"job {job} is running" in err and "(restart 1)" in err
    assert last.startswith(f"job {job}: ") == (lab.scheduler == "slurm")
    assert len(runs(work)) == 1


@pytest.mark.full  # test_job.py has a chain's links, test_pbs_goes_on.py what stops a job of PBS
@first_on("pbs", "slurm")
def test_a_chain_goes_on_in_its_second_link(lab, submit, work):  # noqa: F811
    wait_at(work, 6)
    process = submit(*LONG, "--chain", 2)
    first, second = (line_with(process, process.stdout) for _ in range(2))
    stop_early(lab, first, work)
    status, out, err = ended(process)
    assert status == 0, out + err
    assert f"job {first}: stopped early" in out and f"job {second}: done" in out
    assert len(runs(work)) == 1


@first_on("slurm", "pbs")
def test_a_sweep_ends_in_a_table(lab, submit, work):  # noqa: F811
    status, out, err = ended(submit(*SHORT, "--sweep", "optim.lr=0.1,0.01"))
    assert status == 0, out + err
    names = ["quick-lr0.01", "quick-lr0.1"]
    assert sorted(path.name for path in runs(work)) == names
    head, *rows = out[out.index("\n\n") + 2:].splitlines()
    assert {"run", "eval_loss", "optim.lr"} <= set(head.split())
    assert sorted(row.split()[0] for row in rows) == names and all(" done " in row for row in rows)
    assert len(re.findall(r"^task \S+ \(optim.lr=\S+ run.name=\S+\): done", out, re.M)) == 2
