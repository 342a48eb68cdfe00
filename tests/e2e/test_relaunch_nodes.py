"""Runs that survive their nodes, on a real Slurm of three: docs/how-to/elastic.md. test_relaunch_campaign.py has PBS."""

import pytest
from cluster_kit import go_on, start_lab, wait_at, waiting_program
from cluster_kit import reference, site, wait_at_step, work  # noqa: F401  (fixtures)
from process_kit import wait_for
from relaunch_kit import RANKS, break_run, logged_once, ranks_on, repair, same_bits, sets
from slurm_kit import DDP, finished, log_of
from slurm_kit import environment as usual_environment, sbatch  # noqa: F401  (fixtures)

pytestmark = pytest.mark.about("job_scripts")

STEPS, BREAK = 80, 30
THREE = ("--nodes=3", "--ntasks-per-node=1")


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory):
    """Slurm holds a silent node for dead after 300 s, as is its default: the scripts have to find it themselves."""
    lab = start_lab(tmp_path_factory.mktemp("relaunch") / "lab", "slurm", nodes=3, slurmd_timeout=300)
    lab.broken = []
    yield lab
    lab.stop()


@pytest.fixture
def lab(three_nodes):
    """All of its nodes are there: what the test before broke is repaired."""
    while three_nodes.broken:
        repair(three_nodes, *three_nodes.broken.pop())
    return three_nodes


@pytest.fixture
def environment(usual_environment, lockstep, work, wait_at_step):  # noqa: F811
    """Of jobs whose first run waits at the step at which it is broken."""
    wait_at(work, BREAK)
    yield {**usual_environment, "LOCKSTEP_PROGRAM": str(waiting_program(work, lockstep, wait_at_step))}
    go_on(work)


@pytest.mark.parametrize("how", ["node", pytest.param("cut", marks=pytest.mark.full)])
def test_the_rest_of_the_nodes_go_on(how, lab, sbatch, work, lockstep, reference):  # noqa: F811
    job = sbatch(*THREE, DDP, "quick.yaml", *sets(STEPS))
    broken = break_run(lab, work, job, how, "n3", BREAK)
    lab.broken.append(("n3", how))
    reference(RANKS, "gloo", *sets(STEPS))  # while the node's silence is waited for
    finished(lab, work, job)
    log = log_of(work, job)
    assert "node n3 does not respond; continuing with 2 nodes after step " in log and "(relaunch 1 of at most 3)" in log, log
    assert lab.job(job)["NumNodes"] == "2", "Slurm has been told that the job can do without it"
    assert same_bits(lockstep, broken.run, reference, *sets(STEPS)) and logged_once(broken.run, STEPS)
    if how == "cut":  # its half has ended by itself
        wait_for(lambda: not ranks_on(lab, "n3", job), what="the ranks on n3 to end")
    assert [path.name for path in work.glob(".lockstep-*") if "errors0" not in path.name] == []


@pytest.mark.full
def test_a_spare_node_takes_the_place_of_one_that_died(lab, sbatch, work, lockstep, reference):  # noqa: F811
    """Four ranks on two nodes of three, by two processes a node: the fifth and the sixth carry none."""
    job = sbatch("--nodes=3", "--ntasks-per-node=2", DDP, "quick.yaml", *sets(STEPS))
    broken = break_run(lab, work, job, "node", "n2", BREAK)
    lab.broken.append(("n2", "node"))
    finished(lab, work, job)
    log = log_of(work, job)
    assert "node n2 does not respond; continuing with 2 nodes" in log, log
    assert same_bits(lockstep, broken.run, reference, *sets(STEPS))
