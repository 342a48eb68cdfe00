"""`lockstep render` in a lab: what was rendered runs on Slurm and on the stand-in for PBS."""

import json
import re

import pytest
from cluster_kit import SOURCE, runs
from cluster_kit import site, work  # noqa: F401  (fixtures)
from pbs_kit import ended, pbs, submitted  # noqa: F401  (fixtures)
from pbs_kit import log_of as pbs_log
from slurm_kit import finished, lab  # noqa: F401  (fixtures)

pytestmark = pytest.mark.about("cluster")

SCHEDULERS = ("slurm", "pbs")


@pytest.fixture
def in_lab(lockstep, work, site):  # noqa: F811
    """in_lab(lab, scheduler, words...) -> the path of a script for the quick config, rendered on the lab's login host."""
    def render(where, scheduler, *words):
        where.run(lockstep, "render", scheduler, "quick.yaml", "--out", "job", *words, cwd=work,
                  env={"LOCKSTEP_HOME": str(SOURCE)})
        return work / "job"
    render.environment = {"LOCKSTEP_PROGRAM": str(lockstep), "LOCKSTEP_THREADS_PER_CORE": "1", **site}
    return render


def world_of(work):  # noqa: F811
    return json.loads((runs(work)[0] / "status.json").read_text())["world"]


def test_slurm_runs_what_was_rendered(lab, in_lab, work):  # noqa: F811
    script = in_lab(lab, "slurm", "--nodes", 2, "--ranks-per-node", 2, "--name", "mine", "--set", "train.max_steps=4")
    job = lab.submit(script, cwd=work, env=in_lab.environment)
    finished(lab, work, job)
    assert world_of(work) == 4 and "on 2 nodes" in (work / f"mine-{job}.out").read_text()


@pytest.mark.full
def test_pbs_runs_what_was_rendered(pbs, in_lab, work):  # noqa: F811
    script = in_lab(pbs, "pbs", "--nodes", 2, "--ranks-per-node", 2, "--set", "train.max_steps=4")
    job = submitted(pbs, work, in_lab.environment, script=script)
    assert ended(pbs, job) == 0, pbs_log(work, job)
    assert world_of(work) == 4


@pytest.mark.parametrize("scheduler, queue", [pytest.param("slurm", "main", marks=pytest.mark.full), ("pbs", "workq")])
def test_a_detected_site_is_one_to_render_for(scheduler, queue, request, in_lab, lockstep, work):  # noqa: F811
    where = request.getfixturevalue("lab" if scheduler == "slurm" else "pbs")
    found = where.run(lockstep, "site", "detect", cwd=work).stdout
    (work / "here.yaml").write_text(found)
    assert f"scheduler: {scheduler}\n" in found and f"queue: {queue}\n" in found and "cores_per_node: 32" in found, found
    text = in_lab(where, scheduler, "--site", "here.yaml", "--cpus-per-rank", 16).read_text()
    assert re.search(rf"^#\w+ .*{queue}$", text, re.M), text
    done = where.run(lockstep, "render", scheduler, "quick.yaml", "--site", "here.yaml", "--cpus-per-rank", 17, cwd=work,
                     check=False)
    assert done.returncode == 2 and "the nodes have 32 cores" in done.stderr
