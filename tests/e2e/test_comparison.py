"""The parts of bench/compare: how a job is tried, what its figures become, and what is said of them."""

import sys

import pytest
from conftest import SOURCE

sys.path.append(str(SOURCE / "bench/comparison"))
import targets  # noqa: E402
import verdict  # noqa: E402
import verify  # noqa: E402

pytestmark = pytest.mark.about("bench")


def test_losses_are_compared_to_the_last_bit():
    ours = {"1": 0.5, "2": 0.25}
    for other, tolerance in ((ours, 0), ({"1": 0.5}, 0), ({"1": 0.5, "2": 0.2500001}, 1e-6)):
        assert not verify.difference(ours, other, tolerance)
    for other, tolerance, said in (({"1": 0.5, "2": 0.25000000000000006}, 0, "step 2: "),
                                   ({"1": 0.5, "2": float("nan")}, 1e-6, "step 2: "), ({"3": 0.5}, 0, "no step in common")):
        assert verify.difference(ours, other, tolerance).startswith(said)


def test_a_target_is_met_or_not():
    for ratio, at_most, said in ((1.4, False, "not met"), (1.5, False, "met"), (2, False, "stretch met"), (2, True, "not met"),
                                 (1.5, True, "met")):
        target = targets.Target("T", "", "a.speed", "b.speed", 1.5, None if at_most else 1.8, at_most=at_most)
        assert verdict.word(target, ratio) == said


class Found:
    """Results of one peer and one of ours, in two runs each."""

    def __init__(self, others=0.0, second=100.0):
        self.figures = {"stock.speed": [100.0, second], "mnist.speed": [200.0, 200.0]}
        self.failed, self.late = {}, {}
        self.runs = [{"job": job, "others": others, "steal": 0.0, "middle": {f"{job}.speed": value}}
                     for job, values in (("stock", (100.0, second)), ("mnist", (200.0, 200.0))) for value in values]


def test_a_busy_machine_gives_no_verdict():
    target = targets.TARGETS[0]
    assert verdict.row(target, Found(), None)["verdict"] == "stretch met"
    for busy, why in ((Found(others=0.3), "other processes used 30% of the cores"), (Found(second=150), "from run to run")):
        row = verdict.row(target, busy, None)
        assert row["verdict"] == "no verdict: busy" and why in row["busy"]
