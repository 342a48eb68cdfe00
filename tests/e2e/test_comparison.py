"""The parts of bench/compare: how a job is tried, what its figures become, and what is said of them."""

import os
import pathlib
import signal
import sys
import types

import pytest
from conftest import SOURCE
from process_kit import wait_for

sys.path.append(str(SOURCE / "bench/comparison"))
import contestants  # noqa: E402
import history  # noqa: E402
import jobs  # noqa: E402
import launch  # noqa: E402
import machine  # noqa: E402
import measure  # noqa: E402
import targets  # noqa: E402
import verdict  # noqa: E402
import verify  # noqa: E402

pytestmark = pytest.mark.about("bench")


@pytest.mark.parametrize("text", [
    "{", '{"rows": [], "when": "now", "facts": {"cpu": "x", "lockstep": "y"}}',
    '{"rows": [], "when": "now", "wrong": [], "facts": {"cpu": "x"}}',
    '{"rows": [], "when": 1, "wrong": [], "facts": {"cpu": "x", "lockstep": "y"}}',
    '{"rows": [{"target": "P0"}], "when": "now", "wrong": [], "facts": {"cpu": "x", "lockstep": "y"}}',
    '{"rows": [{"target": "P0", "what": "it", "peer": "stock.speed", "ratio": Infinity}], "when": "now", "wrong": [], '
    '"facts": {"cpu": "x", "lockstep": "y"}}',
], ids=["cut off", "no wrong", "no lockstep", "a time that is none", "a row that is none", "a ratio that is none"])
def test_a_file_that_is_no_comparison_is_known(tmp_path, text):
    (tmp_path / "mine.json").write_text(text)
    with pytest.raises(history.Unreadable, match="mine.json: no comparison of ours"):
        history.read(tmp_path)


@pytest.fixture
def attempted(monkeypatch, tmp_path):
    """attempted(SCRIPT, seconds=30, patience=60) -> the Results of a job that is this shell script."""
    def run(script, seconds=30, patience=60):
        def job(place, pace, folder, limit):
            ran = launch.run([(["sh", "-c", script], {**os.environ, "MARK": str(tmp_path / "mark")})], folder, limit)
            return {"seconds": [ran.seconds]}, ran
        monkeypatch.setitem(jobs.JOBS, "job", job)
        results = measure.Results()
        measure.attempt("job", None, None, measure.Clock(seconds, patience), results)
        return results
    return run


def test_a_contestant_that_hangs_failed(attempted):
    assert "it hangs: still running after 1 s" in attempted("exec sleep 60", patience=1).failed["job"]


def test_a_contestant_that_had_no_time_left_is_late(attempted):
    results = attempted("exec sleep 60", seconds=0.5)
    assert "job" in results.late and not results.failed


@pytest.mark.parametrize("times, fails", [(1, False), (2, True)])
def test_a_port_that_was_taken_is_tried_once_more(attempted, times, fails):
    script = 'echo >>"$MARK"; [ $(wc -l <"$MARK") -gt %d ] || { echo "code: -98, name: EADDRINUSE" >&2; exit 1; }'
    results = attempted(script % times)
    assert ("EADDRINUSE" in results.failed.get("job", ""), "job.seconds" in results.figures) == (fails, not fails)


def test_a_longer_run_may_be_followed_by_a_longer_one():
    clock = measure.Clock(1000, 60)
    assert clock.hangs() == 60
    clock.took("stock", 20)
    assert clock.hangs() == 100


@pytest.mark.parametrize("speeds, windows", [
    ([4.0], [4.0]),
    ([9.0, 4.0], [4.0]),
    ([9.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0], [1.0, 2.0, 3.0]),
    ([9.0, 1.0, 2.0, 2.0, 3.0, 3.0], [1.0, 2.0, 3.0]),  # 5 lines in 3 windows: none is left out
    ([9.0, 1.0, 2.0], [1.0, 2.0]),
])
def test_windows_are_as_many_as_there_may_be(speeds, windows):
    assert contestants.windows(speeds, 3) == windows


def left_of(mark):
    """The pids of spinning processes whose parent was told as this one."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if contestants.SPINNING.encode() in words and str(mark).encode() in words:
            found.append(int(folder.name))
    return found


def test_what_keeps_the_cores_busy_ends_with_the_benchmark(start):
    script = ("import contestants, os, subprocess, sys, time; "
              "subprocess.Popen([sys.executable, '-c', contestants.SPINNING, str(os.getpid())]); time.sleep(60)")
    process = start(sys.executable, "-c", script, env={"PYTHONPATH": str(SOURCE / "bench/comparison")})
    wait_for(lambda: left_of(process.pid), what="a process that spins")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not left_of(process.pid), what="its end")


@pytest.mark.parametrize("other, tolerance, said", [
    ({"1": 0.5, "2": 0.25}, 0, ""),
    ({"1": 0.5}, 0, ""),
    ({"1": 0.5, "2": 0.25000000000000006}, 0, "step 2: "),
    ({"1": 0.5, "2": 0.2500001}, 1e-6, ""),
    ({"1": 0.5, "2": float("nan")}, 1e-6, "step 2: "),
    ({"3": 0.5}, 0, "no step in common"),
])
def test_losses_are_compared_to_the_last_bit(other, tolerance, said):
    assert verify.difference({"1": 0.5, "2": 0.25}, other, tolerance).startswith(said)
    assert bool(verify.difference({"1": 0.5, "2": 0.25}, other, tolerance)) == bool(said)


def test_a_loss_that_changes_between_rounds_is_wrong():
    losses = verify.Losses([])
    losses.add("mnist", {"1": 0.5})
    losses.add("mnist", {"1": 0.25})
    assert "another round had other losses" in losses.wrong[0]


@pytest.mark.parametrize("ratio, at_most, said", [(1.4, False, "not met"), (1.5, False, "met"), (2, False, "stretch met"),
                                                  (2, True, "not met"), (1.5, True, "met")])
def test_a_target_is_met_or_not(ratio, at_most, said):
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
    for busy, why in ((Found(others=0.3), "other processes had 30% of the cores"), (Found(second=150), "from run to run")):
        row = verdict.row(target, busy, None)
        assert row["verdict"] == "no verdict: busy" and why in row["busy"]


@pytest.mark.parametrize("side_by_side, said", [(390.0, "met"), (230.0, "does not apply: two that share nothing reach 1.15 here")])
def test_what_two_jobs_that_share_nothing_do_not_reach_is_asked_of_nobody(side_by_side, said):
    found = Found()
    found.figures["beside.speed"] = [side_by_side]
    wanted = dict(name="T", what="", peer="stock.speed", ours="mnist.speed", stretch=None, share=2, limit="beside.speed")
    assert verdict.row(targets.Target(firm=1.0, **wanted), found, None)["verdict"] == "met"
    assert verdict.row(targets.Target(firm=1.5, **wanted), found, None)["verdict"] == (said if "apply" in said else "not met")


def test_jobs_side_by_side_have_a_folder_each_and_their_speeds_add_up(tmp_path):
    who = contestants.CONTESTANTS["cnn_beside"]
    place = types.SimpleNamespace(mpirun="mpirun", program="lockstep", own_kernels=False)
    pace = types.SimpleNamespace(steps={"cnn": 5}, every={"cnn": 1})
    both = contestants.command(who, place, pace, tmp_path)
    names = [word.partition("=")[2] for words, _ in both for word in words if str(word).startswith("run.name=")]
    assert len(set(names)) == 2
    for name in names:
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "metrics.jsonl").touch()
    assert len(contestants.records(who, tmp_path)) == 2


def test_what_others_took_is_what_neither_we_nor_idleness_had():
    # 10 s of two processors: 4 idle, 2 stolen, 9 ours
    others, steal = machine.shares((100, 50, 0), (120, 54, 2), 9)
    assert (others, steal) == (pytest.approx(5 / 20), pytest.approx(2 / 20))
