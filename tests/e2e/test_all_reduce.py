"""All-reduces of our own, as a run and a job meet them: the bits they train to, and what a lost rank does to them."""

import signal

import pytest
from process_kit import ends_of
from test_comm import peer, ranks, wait_ready, waited  # noqa: F401  (two are fixtures)
from train_kit import PIMA, assert_same_tensors, newest, sets, write_config

pytestmark = pytest.mark.about("comm/algorithms", "tutorials")


def trained(lockstep, mpirun, folder, world, **keys):
    config = write_config(folder, PIMA)
    name = "_".join(["run", str(world), *map(str, keys.values())])
    result = mpirun(world, lockstep, "train", config,
                    *sets(run__dir=folder, run__name=name, train__epochs=1, **keys), check=True)
    return result, newest(folder / name)


@pytest.mark.parametrize("world", [2, 3])
def test_a_ring_trains_to_the_bits_of_gloo(lockstep, mpirun, tmp_path, world):
    _, gloo = trained(lockstep, mpirun, tmp_path, world)
    result, ring = trained(lockstep, mpirun, tmp_path, world, launch__allreduce="ring")
    assert "sums over the ranks by ring over gloo: the same bits as gloo's" in result.output
    assert_same_tensors(gloo["model"], ring["model"])


def test_a_run_says_where_its_bits_are_not_those_of_gloo(lockstep, mpirun, tmp_path):
    result, _ = trained(lockstep, mpirun, tmp_path, 3, launch__allreduce="tree", launch__latency_us=50)
    assert "in another order than gloo's, so with 3 ranks the last bits differ" in result.output
    assert "simulated slow network: 50 us a message" in result.output


@pytest.mark.parametrize("algorithm", ["ring", "two_level"])
def test_a_killed_rank_is_named_at_once(ranks, algorithm):  # noqa: F811
    processes = ranks(3, backend=f"gloo:{algorithm}", timeout=600_000)
    wait_ready(processes)
    victim = processes[2]
    victim.kill()
    victim.wait()
    for status, _, err in ends_of(processes[:2]):
        assert status == 1, err
        assert f"all-reduce ({algorithm})" in err and f"pid {victim.pid}) has died" in err, err
        assert "rank 0 (" not in err and "rank 1 (" not in err, f"only the first death is at fault: {err}"
        assert waited(err) < 300, "or it was the timeout of 10 minutes that ended it"


def test_a_stopped_rank_is_named_by_those_that_do_not_talk_to_it_too(ranks):  # noqa: F811
    processes = ranks(3, backend="gloo:ring", timeout=4000)
    wait_ready(processes)
    processes[1].send_signal(signal.SIGSTOP)
    for status, _, err in ends_of([processes[0], processes[2]]):
        assert status == 1, err
        assert "all-reduce (ring)" in err and "timed out after 4 s" in err and "rank 1 (" in err, err
    processes[1].send_signal(signal.SIGCONT)


@pytest.mark.parametrize("keys, words", [
    (dict(launch__allreduce="ring", launch__backend="nccl"), "needs messages between CPUs"),
    (dict(launch__latency_us=5), "set launch.allreduce to an algorithm"),
    (dict(launch__allreduce="rings"), "did you mean ring"),
])
def test_what_cannot_be_carried_is_refused_once_for_all(lockstep, mpirun, tmp_path, keys, words):
    result = mpirun(2, lockstep, "train", write_config(tmp_path, PIMA), *sets(run__dir=tmp_path, **keys))
    assert result.returncode == 2, result.output
    assert result.output.count(words) == 1, result.output
