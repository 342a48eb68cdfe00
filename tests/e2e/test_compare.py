"""bench/compare: what it promises of its table, its files and its exit status, with runs of few steps."""

import json
import pickle
import re
import signal
import subprocess
import sys

import pytest
from browser_kit import chromium, measured  # noqa: F401
from conftest import SOURCE, left_behind, run_process
from process_kit import LONG_PATIENCE, ends_of, wait_for

pytestmark = pytest.mark.about("bench")

SECONDS = LONG_PATIENCE // 2  # a comparison begins nothing that would end later


@pytest.fixture(scope="session")
def compare(python, build_dir, lockstep):
    """compare(ARG...) -> Result; few steps, one round."""
    def run(*words):
        return run_process([sys.executable, SOURCE / "bench/compare", "--build", build_dir, *words], timeout=LONG_PATIENCE)
    return run


def few_steps(compare, out, *words):
    return compare("--only", "P3,P10", "--steps", 4, "--rounds", 1, "--seconds", SECONDS, "--out", out, *words)


@pytest.fixture(scope="session")
def done(compare, once):
    """(the Result, the folder) of a comparison in which all is right."""
    def make(folder):
        (folder / "result").write_bytes(pickle.dumps(few_steps(compare, folder / "out")))
    folder = once("comparison", make)
    return pickle.loads((folder / "result").read_bytes()), folder / "out"


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


@pytest.mark.full
@pytest.mark.alone  # a step is a second of both cores
def test_models_that_have_no_kernels_of_ours_have_pythons_losses(compare, tmp_path):
    result = compare("--only", "P12", "--steps", 12, "--rounds", 1, "--seconds", SECONDS, "--out", tmp_path)
    assert result.returncode == 0, result.output
    for ours, peer in (("resnet", "resnet_stock"), ("resnet_fast", "resnet_tuned"), ("text", "text_stock")):
        assert re.search(rf"right: {ours} and {peer}: \d+ losses, bit for bit", result.stdout), result.output


def test_the_table_says_what_was_found_and_what_does_not_apply(done):
    result, out = done
    for name in ("cpu", "load", "peers", "lockstep", "mpi"):
        assert re.search(rf"^{name} +\S", result.stdout, re.MULTILINE), name
    assert re.search(r"^P3 +Pima MLP, mpi backend +pima_stock .*≥ 12 +≥ 20 ", result.stdout, re.MULTILINE)
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


WRITE = """
import sys, page
found = {"min": 1000, "median": 2000, "max": 3000}
pictures = page.strips("images a second", [("lockstep, mpi, 2 ranks", "ours", found), ("PyTorch DDP", "peer", found)])
tables = page.table([["target", "what", "wanted", "found", "verdict"], ["P3", "Pima MLP, mpi backend", "15", "16", "ok"]])
print(page.page("beside", [("Speed", pictures), ("Targets", tables)]))
"""


def test_the_page_is_read_on_a_phone(chromium, tmp_path):  # noqa: F811
    page = tmp_path / "page.html"
    page.write_text(run_process([sys.executable, "-B", "-c", WRITE], cwd=SOURCE / "bench/comparison", check=True).stdout)
    seen = measured(chromium, page, 400, tmp_path)
    assert seen["page"] <= 400 and set(seen["cut"]) <= {"scroll"}
    assert min(size for size, _, _ in seen["texts"]) >= 10, seen["texts"]


def test_past_runs_stand_beside_each_other(compare, done, tmp_path):
    first = record(done[1])
    for when, ratio in (("2030-01-01T00-00-00", 3.25), ("2030-01-02T00-00-00", 4.5)):
        rows = [row | {"ratio": ratio, "busy": ""} if "ratio" in row else row for row in first["rows"]]
        (tmp_path / f"{when}.json").write_text(json.dumps(first | {"when": when, "rows": rows}))
    result = compare("--history", tmp_path)
    assert result.returncode == 0, result.output
    assert re.search(r"^target .*2030-01-01T00-00-00 +2030-01-02T00-00-00$", result.stdout, re.MULTILINE)
    assert re.search(r"^P3 +Pima MLP, mpi backend +pima_stock +3.25 +4.5 *$", result.stdout, re.MULTILINE)
    assert (tmp_path / "history.html").read_text().count("<svg") == 3


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
    assert result.returncode == 2 and "mine.json: no comparison of ours" in result.stderr, result.output


def test_a_history_that_cannot_be_written_is_said(compare, tmp_path):
    (tmp_path / "history.html").mkdir()
    (tmp_path / "past.json").write_text('{"rows": [], "when": "now", "wrong": [], "facts": {"cpu": "x", "lockstep": "y"}}')
    result = compare("--history", tmp_path)
    assert result.returncode == 2 and f"error: --history {tmp_path}/history.html: " in result.stderr, result.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_ended_comparison_leaves_nothing(number, python, build_dir, lockstep, start, tmp_path):
    process = start(sys.executable, SOURCE / "bench/compare", "--build", build_dir, "--only", "P3",
                    "--out", tmp_path / "out", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"TMPDIR": str(tmp_path)})
    wait_for(lambda: list(tmp_path.glob("lockstep-compare-*")), what="its first job")
    process.send_signal(number)
    assert ends_of([process])[0][0] == 128 + number
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and not left_behind(process)
