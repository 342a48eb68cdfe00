"""All-reduces of our own, as a run and a job meet them: the bits they train to, and what a lost rank does to them."""

import signal

import pytest
from process_kit import ends_of
from test_comm import peer, ranks, wait_ready, waited  # noqa: F401  (two are fixtures)
from train_kit import PIMA, assert_same_tensors, newest, sets, write_config

pytestmark = pytest.mark.about("comm/algorithms", "tutorials")


def test_a_ring_trains_to_the_bits_of_gloo(lockstep, mpirun, tmp_path):
    config, ended = write_config(tmp_path, PIMA), []
    for name, keys in (("gloo", {}), ("ring", dict(launch__allreduce="ring"))):
        result = mpirun(3, lockstep, "train", config, *sets(run__dir=tmp_path, run__name=name, train__epochs=1, **keys), check=True)
        ended.append(newest(tmp_path / name)["model"])
    assert "sums over the ranks by ring over gloo: the same bits as gloo's" in result.output
    assert_same_tensors(*ended)


def test_a_killed_rank_is_named_at_once(ranks):  # noqa: F811
    processes = ranks(3, backend="gloo:ring", timeout=600_000)
    wait_ready(processes)
    victim = processes[2]
    victim.kill()
    victim.wait()
    for status, _, err in ends_of(processes[:2]):
        assert status == 1, err
        assert "all-reduce (ring)" in err and f"pid {victim.pid}) has died" in err, err
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
