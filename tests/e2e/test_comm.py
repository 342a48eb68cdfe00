"""Process groups as processes meet them: peers that are killed, stopped or late, and many jobs at once."""

import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
from process_kit import PATIENCE, ends_of, shared_library, wait_for

pytestmark = pytest.mark.about("comm", "comm/algorithms", "comm/rendezvous", "comm/shm", "comm/watch")

STEPS_FOR_EVER = 1_000_000


@pytest.fixture
def ranks(start, peer, free_port):
    """ranks(world, backend, timeout_ms, ...) -> the processes of a job as torchrun starts them, without mpirun,
    which would end the survivors before they can say what they saw."""
    def begin(world, backend="gloo", timeout=60_000, join=120_000, steps=STEPS_FOR_EVER, pause=5, only=None, env=None, nodes=1):
        port = free_port()
        started = []
        for rank in range(world) if only is None else only:
            per_node = world // nodes
            own = dict(RANK=rank, WORLD_SIZE=world, LOCAL_RANK=rank % per_node, LOCAL_WORLD_SIZE=per_node,
                       GROUP_RANK=rank // per_node, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **(env or {}))
            started.append(start(peer, backend, timeout, join, steps, pause, env=own, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True))
        return started
    return begin


def wait_ready(processes):
    for process in processes:
        if not any(line.startswith("ready") for line in process.stdout):
            pytest.fail(f"a rank ended before it was ready:\n{process.stderr.read()}")


def ready_pids(job, ranks):
    """{rank: pid}, read from the one output of a whole job until all are ready; fewer where it ended before."""
    pids = {}
    while len(pids) < ranks and (line := job.stdout.readline()):
        if line.startswith("ready"):
            pids[int(line.split()[1])] = int(line.split()[2])
    return pids


def waited(err):
    return float(re.search(r"after ([\d.]+) s", err).group(1))


@pytest.mark.parametrize("backend", ["shared", "gloo", "gloo:ring"])
def test_a_killed_peer_is_named_at_once(ranks, backend):
    processes = ranks(3, backend, timeout=600_000)
    wait_ready(processes)
    victim = processes[2]
    victim.kill()
    victim.wait()
    for status, _, err in ends_of(processes[:2]):
        assert status == 1, err
        assert f"rank 2 (host {os.uname().nodename}, pid {victim.pid}) has died" in err
        assert "rank 0 (" not in err and "rank 1 (" not in err, f"only the first death is at fault: {err}"
        assert waited(err) < 300, "or it was the timeout of 10 minutes that ended it"


@pytest.mark.parametrize("backend", ["gloo", "gloo:ring"])
def test_a_stopped_peer_is_named_after_the_timeout(ranks, backend):
    """Also by the rank that does not talk to it."""
    processes = ranks(3, backend, timeout=4000)
    wait_ready(processes)
    processes[1].send_signal(signal.SIGSTOP)
    for status, _, err in ends_of([processes[0], processes[2]]):
        assert status == 1, err
        assert "timed out after 4 s" in err
        assert "rank 1 (" in err and "is stopped" in err
        assert 4 <= waited(err)
    processes[1].send_signal(signal.SIGCONT)
    (status, _, err), = ends_of([processes[1]])
    assert status == 1, f"a resumed peer ends with an error, not by a signal: {status} {err}"


@pytest.fixture
def ranks_in_mounts(start, peer, free_port):
    """ranks_in_mounts(before) -> two ranks of one machine, each in mounts of its own that `before` has changed."""
    def begin(before, *spaces):
        probe = subprocess.run(["unshare", "--mount", *spaces, "true"], capture_output=True, text=True)
        if probe.returncode != 0:
            pytest.skip(f"no mount namespaces here: {probe.stderr.strip()}")
        env = dict(WORLD_SIZE=2, LOCAL_WORLD_SIZE=2, GROUP_RANK=0, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
        return [start("unshare", "--mount", *spaces, "bash", "-c", f'{before} && exec "$@"', "rank", peer, "shared", 60_000, 20_000, 20,
                      env={**env, "RANK": rank, "LOCAL_RANK": rank}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for rank in range(2)]
    return begin


def test_ranks_that_do_not_see_each_others_processes_sum_over_gloo(ranks_in_mounts):
    """In memory a rank's death is found by its process number, which another PID namespace does not have."""
    said = ""
    for status, out, err in ends_of(ranks_in_mounts("mount -t proc proc /proc", "--pid", "--fork")):
        assert status == 0 and "done" in out, err
        said += err
    assert said.count("rank 0 cannot see the process of rank 1") == 1, said


def gpus():
    return len(list(pathlib.Path("/dev").glob("nvidia[0-9]*")))


@pytest.mark.parametrize("world", [world for world in (1, 2, 4) if world <= gpus()])
def test_real_gpus_sum_and_train_as_the_cpu(ranks, mpirun, run, build_dir, world):
    """Each C++ test runs in its own process, because the CUDA plug-in must be loaded first."""
    if not (build_dir / "lib/liblockstep_cuda.so").exists():
        pytest.skip("built without CUDA")
    for status, _, err in ends_of(ranks(world, backend="nccl", steps=20)):
        assert status == 0, err
    for binary, test, of_ranks in (("test_parallel", "DataParallelOnGpus.TheSameAsOnTheCpu", {1}),
                                   ("test_parallel_ranks", "DdpOnGpus.ParametersOnTwoOfOneRank", {2}),
                                   ("test_parallel_ranks", "SyncNormOnAGpu.*", {1, 2}), ("test_parallel_ranks", "StageLineOnGpus.*", {2, 4})):
        words, env = (build_dir / "bin" / binary, f"--gtest_filter={test}"), {"LOCKSTEP_TEST_GPU": "1"}
        if world in of_ranks and "*" in test:
            mpirun(world, *words, env=env, check=True)
        elif world in of_ranks:
            run(*words, env=env, check=True)


def test_a_cuda_half_of_another_build_is_refused(ranks, tmp_path):
    half = shared_library(tmp_path, "half.so", "int version = 1; void* lockstep_cuda_table(void) { return &version; }\n")
    (status, _, err), = ends_of(ranks(1, backend="nccl", env={"LOCKSTEP_CUDA_PLUGIN": str(half)}))
    assert status == 2 and "belongs to another version of lockstep: 1, not" in err, err


TWO_NODES = """
ip link set lo up && ip link add lockstep0 type veth peer name lockstep1 &&
ip addr add 10.99.0.1/24 dev lockstep0 && ip link set lockstep0 up && ip link set lockstep1 up || exit 77
for rank in 0 1 2 3; do
  RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2 GROUP_RANK=$((rank / 2)) "$@" &
done
wait
"""


@pytest.fixture
def two_nodes(start, peer, free_port):
    """two_nodes(the peer's words, NAME=value) -> a job of two ranks on each of two nodes, and its pids once all have summed. It is one
    network namespace, but pages and node numbers are each node's own."""
    def begin(*words, **env):
        env = dict(MASTER_ADDR="10.99.0.1", MASTER_PORT=free_port(), GLOO_SOCKET_IFNAME="lockstep0", **env)
        job = start("unshare", "--net", "bash", "-c", TWO_NODES, "ranks", peer, *words, env=env, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True)
        pids = ready_pids(job, 4)
        if len(pids) < 4:
            err = job.stderr.read()
            assert job.wait() == 77 or "unshare" in err, err
            pytest.skip(f"no network namespace or veth pair here: {err.strip()[-200:]}")
        return job, pids
    return begin


@pytest.mark.parametrize("how, words, backend", [(signal.SIGKILL, "has died", "shared"), (signal.SIGSTOP, "is stopped", "gloo")])
def test_a_lost_peer_on_another_node_is_named(two_nodes, how, words, backend):
    timeout = 4000 if how == signal.SIGSTOP else 600_000
    job, pids = two_nodes(backend, timeout, 20_000, STEPS_FOR_EVER, 5)
    os.kill(pids[3], how)
    if how == signal.SIGSTOP:
        wait_for(lambda: not any(os.path.exists(f"/proc/{pids[rank]}") for rank in range(3)), what="the others to end")
        os.kill(pids[3], signal.SIGCONT)
    _, err = job.communicate(timeout=PATIENCE)
    assert err.count(f"rank 3 (host {os.uname().nodename}, pid {pids[3]}) {words}") >= 3, err
    assert "did not respond (a node" not in err, err


@pytest.mark.mpi
@pytest.mark.parametrize("count", [6, pytest.param(50, marks=pytest.mark.full)])
def test_many_jobs_at_once_do_not_collide(start, mpiexec, peer, count):
    jobs = [start(mpiexec, "-n", 2, peer, ("shared", "gloo", "mpi")[i % 3], 100_000, 100_000, 3, stdout=subprocess.PIPE,
                  stderr=subprocess.STDOUT, text=True) for i in range(count)]
    for job in jobs:
        out, _ = job.communicate(timeout=PATIENCE)
        assert job.returncode == 0, out
        assert "done 0" in out and "done 1" in out


@pytest.mark.full  # test_cut.py cuts a node off
def test_slow_steps_and_a_stopped_rank_are_no_cut(two_nodes):
    job, pids = two_nodes("gloo", 600_000, 20_000, 2, 2500, LOCKSTEP_SILENCE=1)
    os.kill(pids[3], signal.SIGSTOP)
    time.sleep(4)
    os.kill(pids[3], signal.SIGCONT)
    out, err = job.communicate(timeout=PATIENCE)
    assert all(f"done {rank}" in out for rank in range(4)), err
