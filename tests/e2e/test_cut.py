"""A node that is cut off in silence, on a real two-node Slurm: its packets vanish, and no connection says so."""

import re
import subprocess

import pytest
from cluster_kit import site, start_lab  # noqa: F401  (a fixture among them)
from process_kit import wait_for

pytestmark = pytest.mark.about("comm/watch")

SILENCE = 3
NAMED = re.compile(rf"the node of rank 2 \(host n2, pid \d+\)( and rank 3 \(host n2, pid \d+\))? has not answered for "
                   rf"{SILENCE} s")


@pytest.fixture
def lab(tmp_path):
    lab = start_lab(tmp_path / "lab", "slurm")
    yield lab
    lab.stop()


def test_both_backends_name_the_node_that_was_cut_off(lab, site, build_dir, tmp_path):  # noqa: F811
    """One job a backend and one cut for both, while a collective may take a minute."""
    texts = {backend: tmp_path / f"{backend}.log" for backend in ("gloo", "mpi")}
    for backend, text in texts.items():
        log = open(text, "w")
        lab.popen("srun", "-N2", "--ntasks-per-node=2", "--overlap", "--mpi=" + site.get("LOCKSTEP_SRUN_MPI", "pmix"),
                  build_dir / "bin/comm_peer", backend, 60_000, 30_000, 1_000_000, 50,
                  env={"LOCKSTEP_SILENCE": str(SILENCE), **site}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    for backend, text in texts.items():
        wait_for(lambda: text.read_text().count("ready") == 4, what=f"four ranks over {backend}")
    lab.run("ip", "link", "set", "to-n2", "nomaster")
    for backend, text in texts.items():
        wait_for(lambda: NAMED.search(text.read_text()), what=f"the node's name over {backend}")
        assert "timed out" not in text.read_text()
