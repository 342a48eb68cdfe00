"""lockstep submit on Slurm: a user's own settings, and tasks that were cancelled."""

import pytest
from cluster_kit import runs
from cluster_kit import site, wait_at_step, work  # noqa: F401  (fixtures)
from process_kit import PATIENCE, line_with
from slurm_kit import lab  # noqa: F401  (fixture)
from submit_kit import UNHEARD, submit  # noqa: F401  (a fixture among them)

pytestmark = pytest.mark.about("cluster", "submit")


def test_a_users_own_settings_change_nothing_on_slurm(submit, work):  # noqa: F811
    process = submit("--set", "train.max_steps=4", "--ranks-per-node", 1,
                     env={**{name: value for name, value in UNHEARD.items() if name != "SLURM_JOB_ID"},
                          "SQUEUE_PARTITION": "urgent", "SQUEUE_FORMAT": "%all", "SBATCH_PARTITION": "urgent"})
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + err
    job = out.splitlines()[0]
    assert "restart 0" in out and (work / f"lockstep-{job}.out").exists() and not (work / "x").exists()
    assert len(runs(work)) == 2  # with .jobs


def test_a_task_that_was_cancelled_is_told_with_all_that_is_known(lab, submit, work):  # noqa: F811
    (work / "held.yaml").write_text("scheduler: slurm\ndirectives: [--hold]\n")
    process = submit("--site", "./held.yaml", "--set", "train.max_steps=4", "--ranks-per-node", 1, "--sweep", "run.seed=0..1")
    job = line_with(process, process.stdout)
    lab.run("scancel", f"{job}_1")
    lab.run("scontrol", "release", job)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, out + err
    assert f"task {job}_1 (run.seed=1 run.name=quick-seed1): ended without a word: the scheduler says that it is in its array no more. " \
           f"Its log: lockstep-{job}_1.out, which is not there" in out
    assert f"task {job}_0 (run.seed=0 run.name=quick-seed0): done" in out
