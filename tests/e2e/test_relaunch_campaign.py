"""Ranks and nodes that are killed at random moments, over Slurm and over the stand-in for PBS: every run ends with the bits of
one that was never broken. Prints what docs/how-to/elastic.md tells of the time that is lost.

RELAUNCH_KILLS is the number of them, by default 50.
"""

import os
import random
import re
import statistics

import pytest
from cluster_kit import folder_of_submission, start_lab
from cluster_kit import reference, site  # noqa: F401  (fixtures)
from pbs_kit import DDP as DDP_PBS, ended, log_of as pbs_log, submitted
from relaunch_kit import EVERY, break_run, logged_once, repair, same_bits, sets
from slurm_kit import DDP, finished, log_of
from slurm_kit import environment  # noqa: F401  (a fixture)

pytestmark = pytest.mark.about("job_scripts")

STEPS = 200
KILLS = int(os.environ.get("RELAUNCH_KILLS", "50"))
SECONDS = 15  # from the kill to the next step
HOW = ("rank", "node", "cut")


def slurm_job(lab, work, environment):  # noqa: F811
    job = lab.submit("--nodes=3", "--ntasks-per-node=1", DDP, "quick.yaml", *sets(STEPS), cwd=work, env=environment)

    def succeeded():
        finished(lab, work, job)
        return log_of(work, job)
    return job, succeeded


def pbs_job(lab, work, environment):  # noqa: F811
    variables = {**environment, "CONFIG": "quick.yaml", "SET": " ".join(sets(STEPS)[1::2])}
    job = submitted(lab, work, variables, "-k", "oed", "-l", "select=3:ncpus=1:mpiprocs=1", "-l", "place=scatter", script=DDP_PBS)

    def succeeded():
        assert ended(lab, job) == 0, pbs_log(work, job)
        return pbs_log(work, job)
    return job, succeeded


@pytest.mark.parametrize("scheduler, submit", [("slurm", slurm_job), ("pbs", pbs_job)])
@pytest.mark.full
@pytest.mark.alone  # it measures time
def test_every_broken_run_ends_with_the_bits_of_an_unbroken_one(scheduler, submit, tmp_path, environment, lockstep,  # noqa: F811
                                                                reference, capsys):  # noqa: F811
    chance, rows = random.Random(31), []
    reference(4, "gloo", *sets(STEPS))
    lab = start_lab(tmp_path / "lab", scheduler, nodes=3, slurmd_timeout=300)
    try:
        for number in range(KILLS // 2):
            how, node, step = HOW[number % 3], chance.choice(["n2", "n3"]), chance.randrange(1, STEPS - 40)
            (tmp_path / f"{number}").mkdir()
            work = folder_of_submission(tmp_path / f"{number}")
            job, succeeded = submit(lab, work, environment)
            broken = break_run(lab, work, job, how, node, step)
            seconds = broken.seconds_to_next_step()
            again = re.search(r"; continuing with .* (?:after step (\d+)|from the first step) \(relaunch 1 of", succeeded())
            assert again, (how, node, step)
            redone = broken.step - int(again[1] or 0)
            assert same_bits(lockstep, broken.run, reference, *sets(STEPS)) and logged_once(broken.run, STEPS), (how, node, step)
            rows.append({"how": how, "seconds": seconds, "redone": redone})
            repair(lab, node, how)
    finally:
        lab.stop()
    with capsys.disabled():
        for how in HOW:
            seconds = [row["seconds"] for row in rows if row["how"] == how]
            print(f"\n{scheduler}, {how}: {len(seconds)} kills, seconds to the next step: median {statistics.median(seconds):.1f}, "
                  f"worst {max(seconds):.1f}")
    assert max(row["redone"] for row in rows) <= EVERY
    assert statistics.median(row["seconds"] for row in rows) <= SECONDS
