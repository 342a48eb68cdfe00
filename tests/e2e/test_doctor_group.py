"""Faults between ranks and nodes, each made on purpose: the doctor names it, tells what to do, and ends in time."""

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import time

import pytest
from cluster_kit import start_lab
from conftest import run_process
from process_kit import ends_of, shared_library

pytestmark = pytest.mark.about("doctor")

LIMIT = 60  # seconds, whatever is broken

# On the ranks whose environment says so, the functions of C misbehave as a broken node's do.
FAULTS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static int probe_file = -1;

static int is_run_lock(int fd) {
  char link[64], path[4096] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  if (readlink(link, path, sizeof path - 1) < 5) return 0;
  return strlen(path) > 5 && strcmp(path + strlen(path) - 5, "/lock") == 0;
}

int flock(int fd, int how) {
  const char *fault = getenv("FAULT_FLOCK");
  if (fault && is_run_lock(fd)) {
    if (strcmp(fault, "local") == 0) return 0;
    if (strcmp(fault, "hang") == 0) sleep(100);
    errno = ENOLCK;
    return -1;
  }
  return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(fd, how);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(clock, now);
  const char *ahead = getenv("FAULT_CLOCK");
  if (ahead && clock == CLOCK_REALTIME) now->tv_sec += atoi(ahead);
  return result;
}

/* the doctor's look at its interfaces; MPI has had its own by then */
int getifaddrs(struct ifaddrs **list) {
  Dl_info caller;
  const int ours = dladdr(__builtin_return_address(0), &caller) && strstr(caller.dli_fname, "liblockstep");
  if (ours && getenv("FAULT_STOP")) raise(SIGSTOP);
  return ((int (*)(struct ifaddrs **))dlsym(RTLD_NEXT, "getifaddrs"))(list);
}

int mkostemp(char *name, int flags) {
  const char *fault = getenv("FAULT_HANG");
  const int probe = fault && strstr(name, ".lockstep-doctor-");
  if (probe && strcmp(fault, "write")) sleep(100);
  const int file = ((int (*)(char *, int))dlsym(RTLD_NEXT, "mkostemp"))(name, flags);
  if (probe) probe_file = file;
  return file;
}

/* into the probe's bytes: the probe is there by then */
ssize_t write(int fd, const void *bytes, size_t size) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "write");
  if (fd == probe_file) sleep(100);
  return real(fd, bytes, size);
}
"""


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    return shared_library(tmp_path_factory.mktemp("faults"), "faults.so", FAULTS)


@dataclasses.dataclass
class Told:
    """What a doctor said."""
    status: int
    report: dict

    def of(self, check, verdict=None):
        return [f for f in self.report["findings"] if f["check"] == check and verdict in (None, f["verdict"])]

    def said(self, check):
        return [(f["verdict"], f["says"]) for f in self.of(check)]

    def one(self, check, verdict, *words):
        """The finding of that check and verdict with all the words, which has a remedy unless all is well."""
        found = [f for f in self.of(check, verdict) if all(word in f["says"] for word in words)]
        assert len(found) == 1, self.said(check)
        assert bool(found[0]["remedy"]) == (verdict != "ok")
        return found[0]

    def line(self, check, words):
        assert [f for f in self.of(check) if words in f["says"]], self.said(check)

    def is_well(self, *checks):
        for check in checks:
            assert self.of(check), f"{check} said nothing"
            assert self.of(check) == self.of(check, "ok"), self.said(check)


def told(result):
    status, out, err = (result.returncode, result.stdout, result.stderr) if hasattr(result, "stdout") else result
    assert "{" in out, out + err
    report, _ = json.JSONDecoder().raw_decode(out[out.index("{"):])
    assert report["seconds"] < LIMIT
    assert (status != 0) == (report["verdict"] == "failure"), (status, err)
    return Told(status, report)


# ---- two nodes ---------------------------------------------------------------------------------------------


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

    def network(self, node, name, address):
        """An interface that leads nowhere."""
        script = f"ip link add {name} type bridge && ip address add {address} dev {name} && ip link set {name} up"
        return self.done(node, ["sh", "-c", script], ["ip", "link", "delete", name])

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
def cluster(lab, lockstep, faults, tmp_path_factory):
    return Cluster(lab, lockstep, faults, tmp_path_factory.mktemp("two nodes"))


def test_two_nodes_that_are_well(cluster):
    report = cluster.doctor()
    report.is_well("interfaces", "reach", "clocks", "folders", "nccl")
    interfaces = report.one("interfaces", "ok", "gloo takes eth0 on 2 nodes")
    assert "n2: lo 127.0.0.1/8, eth0 10.213.7.12/24 (gloo)" in interfaces["drawing"]
    report.one("reach", "ok", "2 connections")
    report.one("folders", "ok", "the data folder", "the same files, 3 entries")
    report.one("folders", "ok", "the run's lock holds between them")
    for backend in ("gloo", "mpi"):
        report.one(backend, "ok", "4 ranks, sums right; 1 KiB in", "bus bandwidth")
        assert not report.of(backend, "failure") and len(report.of(backend)) == 3
        report.line(backend, "between rank 0 (n1) and rank 2 (n2)")  # slow or not, as busy as this machine is
        report.line(backend, "within a node is between rank ")
    report.one("nccl", "ok", "not tried: no GPU here")
    assert not list(cluster.folder.rglob(".lockstep-doctor*")) and not list((cluster.folder / "runs").iterdir())


def test_an_interface_that_is_not_there_and_a_clock_that_is_off(cluster):
    with cluster.over("n2", cluster.folder / "runs"):
        report = cluster.doctor(NCCL_SOCKET_IFNAME="ib7", second_node=f"GLOO_SOCKET_IFNAME=eth7 FAULT_CLOCK=90 "
                                                                      f"LD_PRELOAD='{cluster.faults}'")
    wrong = report.one("interfaces", "failure",
                       "rank 2-3: GLOO_SOCKET_IFNAME is 'eth7', and there is no such interface")
    assert "eth0 (10.213.7.12)" in wrong["remedy"]
    report.one("interfaces", "failure", "NCCL_SOCKET_IFNAME is 'ib7'")
    report.one("gloo", "failure", "not tried")
    report.one("mpi", "ok", "sums right")  # whatever gloo cannot
    off = report.one("clocks", "failure", "(host n2) is ", "ahead of rank 0's, give or take")
    assert 85 < float(off["says"].partition(" s ahead")[0].rpartition(" ")[2]) < 95
    report.one("folders", "failure", "is not the same on all nodes", "is not seen on n2 (tmpfs)")


def test_a_host_name_that_is_the_loopback_and_data_that_is_not_there(cluster):
    hosts = cluster.folder / "hosts of n2"
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 n2\n10.213.7.11 n1\n10.213.7.1 login\n")
    with cluster.done("n2", ["mount", "--bind", hosts, "/etc/hosts"], ["umount", "-l", "/etc/hosts"]), \
            cluster.over("n2", cluster.folder / "data"), \
            cluster.done("n2", ["mount", "--bind", "-o", "ro", cluster.folder / "runs", cluster.folder / "runs"],
                         ["umount", "-l", cluster.folder / "runs"]):
        report = cluster.doctor()
        gone = cluster.doctor("--data", cluster.folder / "data/part 1", "--runs", cluster.folder / "runs")
    trap = report.one("interfaces", "failure", "rank 2-3: the host name 'n2' resolves to 127.0.1.1, the loopback")
    assert "GLOO_SOCKET_IFNAME" in trap["remedy"]
    report.one("mpi", "ok", "sums right")
    report.one("folders", "failure", "holds other files on n2 than on n1")
    report.one("folders", "failure", "the run folder", "on n2: Read-only file system")
    gone.one("folders", "failure", "part 1 on n2: No such file or directory")


def test_an_interface_that_leads_nowhere_and_locks_of_one_node(cluster):
    with cluster.network("n1", "iso0", "10.98.0.11/24"), cluster.network("n2", "iso0", "10.99.0.12/24"):
        report = cluster.doctor(GLOO_SOCKET_IFNAME="iso0",
                                second_node=f"LD_PRELOAD='{cluster.faults}' FAULT_FLOCK=local")
    report.one("interfaces", "warning", "different subnets: 10.98.0.0/24 on n1 (iso0), 10.99.0.0/24 on n2 (iso0)")
    report.one("reach", "failure", "n1 does not reach n2 at 10.99.0.12", "n2 does not reach n1 at 10.98.0.11")
    report.one("gloo", "failure", "not tried: the nodes do not reach each other")
    report.one("mpi", "failure", "not tried: the ranks meet at rank 0's address, which n2 does not reach")
    report.one("folders", "failure", "locks do not hold between nodes: n2 gets the run's lock while n1 holds it")


def test_a_slow_line_beside_a_fast_one_and_no_locks(cluster):
    slow = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "80mbit", "burst", "64kb", "latency", "2s"]
    with cluster.done("n2", slow, ["tc", "qdisc", "del", "dev", "eth0", "root"]), \
            cluster.network("n1", "hsn0", "10.97.0.11/24"), cluster.network("n2", "hsn0", "10.97.0.12/24"):
        report = cluster.doctor(second_node=f"LD_PRELOAD='{cluster.faults}' FAULT_FLOCK=none")
    fabric = report.one("interfaces", "warning", "gloo takes eth0, and every node has the faster hsn0")
    assert "GLOO_SOCKET_IFNAME=hsn0" in fabric["remedy"]
    for backend in ("gloo", "mpi"):
        report.one(backend, "ok", "sums right")
        line = report.one(backend, "warning", "slow between nodes, at worst between rank 0 (n1) and rank 2 (n2)")
        speed, unit = line["says"].rpartition(", ")[2].split()
        assert unit == "MB/s" and float(speed) < 25, "one way at 10 MB/s"
    report.one("folders", "warning", "the file system has no locks on n2: No locks available")


# ---- one node ----------------------------------------------------------------------------------------------


def test_a_stopped_rank_is_named(mpirun, lockstep, faults, tmp_path):
    script = f'[ "$OMPI_COMM_WORLD_RANK$PMI_RANK" = 1 ] && export LD_PRELOAD="{faults}" FAULT_STOP=1; exec "$@"'
    result = mpirun(3, "bash", "-c", script, "rank", lockstep, "doctor", "--json", cwd=tmp_path, quiet=True,
                    env={"LOCKSTEP_JOIN_TIMEOUT": 3})
    assert result.returncode != 0 and result.seconds < LIMIT
    report, _ = json.JSONDecoder().raw_decode(result.stdout)
    stopped = Told(1, report).one("interfaces", "failure", "rank 1 (host ", "did not answer: no word from rank 1")
    assert "state T" in stopped["remedy"]


def test_a_stopped_rank_is_named_without_mpi(start, lockstep, faults, tmp_path, free_port):
    base = dict(WORLD_SIZE=3, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), LOCKSTEP_JOIN_TIMEOUT=3)
    ranks = [start(lockstep, "doctor", "--json", cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                   text=True, env={**base, "RANK": rank, "LOCAL_RANK": rank,
                                   **({"LD_PRELOAD": faults, "FAULT_STOP": 1} if rank == 2 else {})}) for rank in range(3)]
    first, second = ends_of(ranks[:2], LIMIT)
    report = told(first)
    stopped = report.one("interfaces", "failure", "rank 2 ", "did not answer")
    assert "rank 1 " not in stopped["says"], "it is well"
    assert second[0] == 1 and not second[1], "rank 0 has said it"


def test_the_others_speak_when_rank_zero_is_stopped(mpirun, lockstep, faults, tmp_path):
    script = f'[ "$OMPI_COMM_WORLD_RANK$PMI_RANK" = 0 ] && export LD_PRELOAD="{faults}" FAULT_STOP=1; exec "$@"'
    result = mpirun(3, "bash", "-c", script, "rank", lockstep, "doctor", cwd=tmp_path, quiet=True,
                    env={"LOCKSTEP_JOIN_TIMEOUT": 3})
    assert result.returncode != 0 and result.seconds < LIMIT
    assert "rank 0" in result.stdout and "did not answer" in result.stdout, result.output
    assert "came meanwhile" not in result.stdout, "mpirun wakes it to end it, and the others have told"


def test_ranks_without_mpi_try_gloo_alone(start, lockstep, tmp_path, free_port):
    base = dict(WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    ranks = [start(lockstep, "doctor", "--json", cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                   text=True, env={**base, "RANK": rank, "LOCAL_RANK": rank}) for rank in range(2)]
    first, second = ends_of(ranks, LIMIT)
    report = told(first)
    report.is_well("interfaces", "clocks", "folders")
    report.one("gloo", "ok", "2 ranks, sums right")
    report.one("mpi", "ok", "not tried: the ranks were not started by it")
    assert second == (0, "", second[2])


def in_a_mount(options, lockstep, folder):
    """A doctor whose run folder is a file system of its own."""
    script = 'mount -t tmpfs $1 tmpfs "$2" || exit 77; exec "$3" doctor --json --runs "$2"'
    done = run_process(["unshare", "--mount", "bash", "-c", script, "doctor", options, folder, lockstep],
                       cwd=folder.parent)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no mounts here: {done.stderr.strip()}")
    return told(done)


def test_a_full_disk(lockstep, tmp_path):
    report = in_a_mount("-osize=64k", lockstep, tmp_path)
    report.one("folders", "failure", f"the run folder {tmp_path}", "No space left on device")


def test_little_room(lockstep, tmp_path):
    report = in_a_mount("-osize=5m", lockstep, tmp_path)
    report.one("folders", "warning", f"the run folder {tmp_path}: 5.0 MiB are free there")


def test_a_file_system_that_does_not_answer(run, lockstep, faults, tmp_path):
    result = run(lockstep, "doctor", "--json", "--runs", tmp_path, env={"LD_PRELOAD": faults, "FAULT_HANG": 1})
    told(result).one("folders", "failure", f"the run folder {tmp_path}", "the file system did not answer in time")
    assert result.seconds < 30


def test_a_lock_that_does_not_answer(run, mpirun, lockstep, faults, tmp_path):
    hangs = {"LD_PRELOAD": faults, "FAULT_FLOCK": "hang"}
    one = run(lockstep, "doctor", "--json", "--runs", tmp_path, env=hangs)
    two = mpirun(2, lockstep, "doctor", "--json", "--runs", tmp_path, env=hangs)
    for result in (one, two):
        report = told(result)
        stuck = report.one("folders", "failure", f"the lock of a run in {tmp_path} did not answer in time on ")
        assert "lockd" in stuck["remedy"]
        assert result.seconds < 40 and "did not answer: " not in result.stdout
    told(two).one("gloo", "ok", "sums right")


def test_the_folders_are_those_of_the_config(run, lockstep, tmp_path):
    (tmp_path / "mine.yaml").write_text("run: {dir: 'my ${PLACE}'}\ntask: {name: pima}\ndata: {root: none here}\n")
    report = told(run(lockstep, "doctor", "--json", "mine.yaml", cwd=tmp_path, env={"PLACE": "runs"}))
    report.one("folders", "failure", f"the data folder {tmp_path}/none here on ", "No such file or directory")
    report.one("folders", "ok", f"the run folder {tmp_path}/my runs")
    assert not (tmp_path / "my runs").exists()
    given = run(lockstep, "doctor", "--json", "mine.yaml", "--data", tmp_path, cwd=tmp_path, env={"PLACE": "runs"})
    told(given).is_well("folders")


def test_a_config_that_is_wrong_is_a_failure_of_one_check(run, lockstep, tmp_path):
    report = told(run(lockstep, "doctor", "--json", "none.yaml", cwd=tmp_path))
    report.one("folders", "failure", "none.yaml")
    report.is_well("interfaces")


# ---- a sudden end ------------------------------------------------------------------------------------------


def until(there, seconds=30):
    """What `there` gives once it gives something."""
    for _ in range(seconds * 50):
        if found := there():
            return found
        time.sleep(0.02)
    raise AssertionError("it never came")


def is_listened_at(port):
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def probes_in(folder):
    return [path for path in folder.iterdir() if path.name.startswith(".lockstep-doctor-")]


def held(start, lockstep, faults, folder, *words, **env):
    """A doctor that hangs in its look at the run folder, with its probe there."""
    process = start(lockstep, "doctor", "--runs", folder, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    text=True, env={"LD_PRELOAD": faults, "FAULT_HANG": "write", **env})
    until(lambda: probes_in(folder))
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_ends_it_with_what_was_found_by_then_and_without_its_probes(start, lockstep, faults, tmp_path, number):
    process = held(start, lockstep, faults, tmp_path)
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=10)
    assert process.returncode == -number and time.monotonic() - began < 5, (out, err)
    lines = out.splitlines()
    assert sum(line.startswith("ok       memory") for line in lines) <= 1 and "interfaces" in out
    assert f"failure  folders     {number.name} came meanwhile (folders)" in out
    assert "1 failure, " in lines[-1] and out.count(" failure, ") == 1, "the summary is the last word"
    assert not probes_in(tmp_path)


def test_sigterm_before_the_ranks_have_met_is_told_too(start, lockstep, free_port):
    port = free_port()
    process = start(lockstep, "doctor", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    env=dict(RANK=0, WORLD_SIZE=2, LOCAL_RANK=0, MASTER_ADDR="127.0.0.1", MASTER_PORT=port))
    until(lambda: is_listened_at(port))
    process.terminate()
    out, err = process.communicate(timeout=10)
    assert process.returncode == -signal.SIGTERM, (out, err)
    assert "SIGTERM came meanwhile" in out and "memory" in out and " failure, " in out.splitlines()[-1]


@pytest.mark.mpi
def test_when_mpirun_ends_the_ranks_rank_zero_tells_what_stands(mpirun, lockstep, faults, tmp_path):
    script = (f'[ "$OMPI_COMM_WORLD_RANK$PMI_RANK" = 1 ] && ( while ! ls -d "{tmp_path}"/.lockstep-doctor-*; do '
              f'sleep 0.05; done; kill -KILL $$ ) >/dev/null 2>&1 & '
              f'[ "$OMPI_COMM_WORLD_RANK$PMI_RANK" = 0 ] && export LD_PRELOAD="{faults}" FAULT_HANG=write; exec "$@"')
    result = mpirun(2, "bash", "-c", script, "rank", lockstep, "doctor", "--runs", tmp_path, quiet=True)
    assert result.returncode != 0 and result.seconds < 30
    assert "SIGTERM came meanwhile (folders)" in result.stdout, result.output
    assert result.stdout.count(" failure, ") == 1 and not probes_in(tmp_path)


def test_a_later_doctor_removes_what_a_killed_one_left(start, run, lockstep, faults, tmp_path):
    process = held(start, lockstep, faults, tmp_path)
    process.kill()
    process.communicate()
    (left,) = probes_in(tmp_path)
    folder = tmp_path / ".lockstep-doctor-abcdef"
    folder.mkdir()
    (folder / "first").write_text("x")
    mine = tmp_path / ".lockstep-doctor-notes"
    mine.write_text("somebody's own")
    for path in (left, folder, mine):
        os.utime(path, (time.time() - 1000,) * 2)
    run(lockstep, "doctor", "--runs", tmp_path, check=True)
    assert probes_in(tmp_path) == [mine]


def test_of_processes_that_are_each_rank_0_of_1_one_speaks(start, run, lockstep, faults, tmp_path):
    env = {"PMIX_NAMESPACE": f"job of {tmp_path}", "SLURM_JOB_ID": 1, "SLURM_NTASKS": 2, "PATH": "/usr/bin:/bin"}
    first = held(start, lockstep, faults, tmp_path, **env)
    second = run(lockstep, "doctor", "--json", "--report", tmp_path / "report.json", env=env)
    assert second.returncode == 1 and second.stdout == "" and not (tmp_path / "report.json").exists(), second.output
    first.terminate()
    out, _ = first.communicate(timeout=10)
    assert "was started alone (rank 0 of 1)" in out
