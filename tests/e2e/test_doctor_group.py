"""Faults between two nodes, each made on purpose: the doctor names it, tells what to do, and ends in time."""

import contextlib
import subprocess

import pytest
from cluster_kit import start_lab
from doctor_kit import LIMIT, faults, told  # noqa: F401  (a fixture among them)

pytestmark = pytest.mark.about("doctor")


class Cluster:
    """Two nodes with a folder in common, and what can be done to them until the test is over."""

    def __init__(self, lab, lockstep, faults, folder):
        self.lab, self.lockstep, self.faults, self.folder = lab, lockstep, faults, folder
        for name in ("data", "runs"):
            (folder / name).mkdir()
        for number in range(3):
            (folder / "data" / f"part {number}").write_text("x" * number)

    def on(self, node, *command, check=True):
        """Runs a command on a node, as its root."""
        inside = ["nsenter", "--target", str(self.lab.node_init(node)), "--mount", "--net", "--uts", "--pid"]
        return subprocess.run([*inside, *map(str, command)], check=check, capture_output=True, text=True)

    @contextlib.contextmanager
    def done(self, node, command, undo):
        made = self.on(node, *command, check=False)
        if made.returncode:
            pytest.skip(f"this kernel cannot: {' '.join(map(str, command))}: {made.stderr.strip()}")
        try:
            yield
        finally:
            self.on(node, *undo)

    def over(self, node, place, *options):
        """An empty file system of the node's own over that place."""
        return self.done(node, ["mount", "-t", "tmpfs", *options, "tmpfs", place], ["umount", "-l", place])

    def doctor(self, *words, second_node="", **env):
        """Two ranks a node; `second_node`: exports on n2 alone."""
        script = f'[ "$(hostname)" = n2 ] && export {second_node or "NOTHING=1"}; exec "$@"'
        words = words or ("--data", self.folder / "data", "--runs", self.folder / "runs")
        done = self.lab.run("srun", "-N2", "--ntasks-per-node=2", "--mpi=pmix", "bash", "-c", script, "rank",
                            self.lockstep, "doctor", "--json", *words, cwd=self.folder, check=False, timeout=LIMIT + 20,
                            env={"OMP_NUM_THREADS": "1", "OMPI_MCA_btl_tcp_if_include": "eth0", **env})
        return told(done)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = start_lab(tmp_path_factory.mktemp("doctor") / "lab", "slurm")
    yield lab
    lab.stop()


@pytest.fixture(scope="module")
def cluster(lab, lockstep, faults, tmp_path_factory):  # noqa: F811
    return Cluster(lab, lockstep, faults, tmp_path_factory.mktemp("two nodes"))


def test_two_nodes_that_are_well(cluster):
    report = cluster.doctor()
    report.is_well("interfaces", "reach", "clocks", "folders", "nccl")
    interfaces = report.one("interfaces", "ok", "gloo uses eth0 on 2 nodes")
    assert "n2: lo 127.0.0.1/8, eth0 10.213.7.12/24 (gloo)" in interfaces["drawing"]
    report.one("reach", "ok", "2 connections")
    report.one("folders", "ok", "the data folder", "the same files, 3 entries")
    report.one("folders", "ok", "the run's lock works between them")
    report.one("shared", "ok", "4 ranks, sums right; 1 KiB in", "bus bandwidth")
    for backend in ("gloo", "mpi"):
        report.one(backend, "ok", "4 ranks, sums right; 1 KiB in", "bus bandwidth")
        assert not report.of(backend, "failure")  # slow or not, as busy as this machine is
    report.one("nccl", "ok", "not tried: no GPU here")
    assert not list(cluster.folder.rglob(".lockstep-doctor*")) and not list((cluster.folder / "runs").iterdir())


def test_an_interface_that_is_not_there_and_a_clock_that_is_off(cluster):
    with cluster.over("n2", cluster.folder / "runs"):
        report = cluster.doctor(NCCL_SOCKET_IFNAME="ib7", second_node=f"GLOO_SOCKET_IFNAME=eth7 FAULT_CLOCK=90 "
                                                                      f"LD_PRELOAD='{cluster.faults}'")
    wrong = report.one("interfaces", "failure",
                       "rank 2-3: GLOO_SOCKET_IFNAME is 'eth7', but there is no such interface")
    assert "eth0 (10.213.7.12)" in wrong["remedy"]
    report.one("interfaces", "failure", "NCCL_SOCKET_IFNAME is 'ib7'")
    report.one("gloo", "failure", "not tried")
    report.one("mpi", "ok", "sums right")  # whatever gloo cannot
    off = report.one("clocks", "failure", "(host n2) is ", "ahead of rank 0's (to within")
    assert 1.4 < float(off["says"].partition(" min ahead")[0].rpartition(" ")[2]) < 1.6
    report.one("folders", "failure", "is not the same on all nodes", "n2 (tmpfs) does not see what n1 writes there")
