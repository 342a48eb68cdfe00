"""bench/compare: what it promises of its table, its files and its exit status, with runs of few steps."""

import json
import re
import shutil
import sys

import pytest
from conftest import SOURCE, run_process

sys.path.insert(0, str(SOURCE / "bench/comparison"))
import machine  # noqa: E402
import targets  # noqa: E402
import verdict  # noqa: E402
import verify  # noqa: E402

PATIENCE = 240


@pytest.fixture(scope="module")
def compare(python, build_dir, lockstep):
    """compare(ARG...) -> Result; few steps, one round."""
    def run(*words):
        return run_process([sys.executable, SOURCE / "bench/compare", "--build", build_dir, *words], timeout=PATIENCE)
    return run


def few_steps(compare, out, *words):
    return compare("--only", "P3,P10", "--steps", 4, "--rounds", 1, "--seconds", PATIENCE, "--out", out, *words)


@pytest.fixture(scope="module")
def done(compare, tmp_path_factory):
    """(the Result, the folder) of a comparison in which all is right."""
    out = tmp_path_factory.mktemp("results")
    return few_steps(compare, out), out


def record(folder):
    file, = folder.glob("*.json")
    return json.loads(file.read_text())


def test_a_right_result_is_no_failure_however_slow(done):
    result, out = done
    assert result.returncode == 0, result.output
    assert "right: pima and pima_stock: 4 losses, bit for bit" in result.stdout
    assert "right: pima_mpi and pima_stock: 4 losses, bit for bit" in result.stdout
    assert "WRONG" not in result.stdout and not result.left_behind
    row = next(row for row in record(out)["rows"] if row["ours"] == "pima_mpi.speed")
    assert row["ratio"] == row["our_figures"]["median"] / row["peer_figures"]["median"]
    for who in ("our_figures", "peer_figures"):
        assert 0 < row[who]["min"] <= row[who]["median"] <= row[who]["max"]


def test_the_table_says_what_was_found_and_what_does_not_apply(done):
    result, out = done
    for name in ("cpu", "load", "peers", "lockstep", "mpi"):
        assert re.search(rf"^{name} +\S", result.stdout, re.MULTILINE), name
    assert re.search(r"^P3 +Pima MLP, mpi backend +pima_stock .*≥ 15 +≥ 20 ", result.stdout, re.MULTILINE)
    gpu = next(row for row in record(out)["rows"] if row["target"] == "P10")
    assert gpu["verdict"].startswith("does not apply: ") and "ratio" not in gpu


def test_the_page_needs_nothing_from_elsewhere(done):
    _, out = done
    page = next(out.glob("*.html")).read_text()
    assert page.count("<svg") == 2 and "prefers-color-scheme:dark" in page
    assert not re.search(r'<script|<link|src=|url\(|href=', page)


@pytest.fixture
def other_peers(tmp_path):
    """other_peers(old, new) -> a folder with the Pima program in which that is changed."""
    def change(old, new):
        text = (SOURCE / "bench/comparison/peers/pima.py").read_text()
        assert old in text
        (tmp_path / "peers").mkdir()
        (tmp_path / "peers/pima.py").write_text(text.replace(old, new))
        return tmp_path / "peers"
    return change


def test_a_peer_with_other_losses_is_a_wrong_result(compare, other_peers, tmp_path):
    result = few_steps(compare, tmp_path / "out", "--peers", other_peers("lr=0.01", "lr=0.0100001"))
    assert result.returncode == 1, result.output
    assert "WRONG: pima and pima_stock should have the same losses bit for bit: step " in result.stdout
    assert record(tmp_path / "out")["wrong"]


def test_a_peer_that_breaks_is_a_failure(compare, other_peers, tmp_path):
    result = few_steps(compare, tmp_path / "out", "--peers", other_peers("import record", "raise SystemExit('no luck')"))
    assert result.returncode == 1 and "no luck" in record(tmp_path / "out")["failed"]["pima_stock"], result.output
    assert "pima_stock failed" in result.stdout


def test_past_runs_stand_beside_each_other(compare, done, tmp_path):
    first = record(done[1])
    for when, ratio in (("2030-01-01T00-00-00", 3.25), ("2030-01-02T00-00-00", 4.5)):
        rows = [row | {"ratio": ratio, "busy": ""} if "ratio" in row else row for row in first["rows"]]
        (tmp_path / f"{when}.json").write_text(json.dumps(first | {"when": when, "rows": rows}))
    result = compare("--history", tmp_path)
    assert result.returncode == 0, result.output
    assert re.search(r"^target .*2030-01-01T00-00-00 +2030-01-02T00-00-00$", result.stdout, re.MULTILINE)
    assert re.search(r"^P3 +Pima MLP, mpi backend +pima_stock +3.25 +4.5 *$", result.stdout, re.MULTILINE)
    assert (tmp_path / "history.html").read_text().count("<svg") == 2


@pytest.mark.parametrize("words, said", [
    (("--only", "P77"), "the targets are P0, P1"),
    (("--steps", "0"), "not a number from 1 on"),
    (("--history", "/nowhere"), "no such folder"),
    (("--only", "P3", "--peers", "/nowhere"), "/nowhere/pima.py is not there"),
    (("--build", "/nowhere"), "scripts/bootstrap builds it"),
    (("--out", "/proc/nowhere"), "name a folder that can be written"),
])
def test_what_cannot_be_done_is_said(compare, tmp_path, words, said):
    result = compare("--out", tmp_path, *words)
    assert result.returncode == 2 and said in result.stderr, result.output


def test_a_stranger_among_the_results_is_named(compare, tmp_path):
    (tmp_path / "mine.json").write_text("[1, 2]")
    result = compare("--history", tmp_path)
    assert result.returncode == 2 and "mine.json" in result.stderr, result.output


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


def test_what_others_took_is_what_neither_we_nor_idleness_had():
    # 10 s of two processors: 4 idle, 2 stolen, 9 ours
    others, steal = machine.shares((100, 50, 0), (120, 54, 2), 9)
    assert (others, steal) == (pytest.approx(5 / 20), pytest.approx(2 / 20))
