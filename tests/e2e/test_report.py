"""lockstep report: one page of a run that says how it ended and needs nothing else; and job scripts that leave it."""

import json
import re
import shutil

import pytest

from conftest import SOURCE, run_process
from train_kit import ANY_CPU, MNIST, PIMA, sets, write_config, write_small_mnist

pytestmark = pytest.mark.about("report")

@pytest.fixture(scope="module")
def mnist(lockstep, mpiexec, tmp_path_factory):
    """A run of two ranks on a few images, and its report."""
    place = tmp_path_factory.mktemp("mnist")
    root = write_small_mnist(place / "data", train=1024, test=255)
    words = sets(data__root=root, data__workers=0, train__log_every=1, train__eval_every=1)
    run_process([mpiexec, "-n", 2, lockstep, "train", write_config(place, MNIST), *words], cwd=place, env=ANY_CPU, check=True)
    run_process([lockstep, "report", "runs/mnist"], cwd=place, check=True)
    return place / "runs/mnist"


def data_of(page):
    """What the page's script draws: {heading: [{kind: value}, ...]}."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())[1])
    return {section["heading"]: section["items"] for section in data["sections"]}


def test_the_page_has_every_part_and_needs_nothing_else(mnist):
    html = (mnist / "report.html").read_text()
    assert "default-src 'none'" in html and "<noscript>" in html
    assert not re.search(r"<link|<iframe|@import|url\(|src=|fetch\(|XMLHttpRequest|import\(", html)
    assert set(re.findall(r"https?://[^\"' <]*", html)) == {"http://www.w3.org/2000/svg"}
    parts = data_of(mnist / "report.html")
    assert list(parts) == ["Result", "Curves", "Evaluation", "Phases", "Stops and restarts", "Config"]
    assert "finished all epochs" in str(parts["Result"])
    (run,), = [item["curves"] for item in parts["Curves"]]
    assert {"loss", "lr"} <= {*run["steps"]} and {"train_loss", "eval_loss", "accuracy"} <= {*run["epochs"]}
    assert len(parts["Phases"][0]["bars"]["values"]) == 2 and parts["Phases"][0]["bars"]["parts"][1] == "forward"
    attempt, = json.loads((mnist / "report.json").read_text())["attempts"]
    assert (attempt["number"], attempt["state"], attempt["world"], attempt["step"]) == (1, "done", 2, 4)
    assert len(attempt["hosts"]) == 2 and attempt["program"] and attempt["libtorch"] and attempt["began"] <= attempt["ended"]
    names, ranks = attempt["phases"]["names"], attempt["phases"]["ranks"]
    assert names[:3] == ["data", "forward", "backward"] and len(ranks) == 2 and all(rank[1] > 0 for rank in ranks)


def test_the_worst_samples_are_the_worst(mnist, lockstep, run):
    """As Python finds them in the checkpoint: the same samples, the same losses, the same pixels."""
    np = pytest.importorskip("numpy")
    facts = json.loads((mnist / "report.json").read_text())
    worst = facts["evaluation"]["worst"]
    assert len(worst) == 12 and [s["loss"] for s in worst] == sorted((s["loss"] for s in worst), reverse=True)
    assert sum(map(sum, facts["evaluation"]["confusion"])) == 255
    right = sum(row[i] for i, row in enumerate(facts["evaluation"]["confusion"]))
    assert facts["evaluation"]["values"]["accuracy"] == pytest.approx(right / 255)
    raw = mnist.parents[1] / "data/MNIST/raw"
    images = np.frombuffer((raw / "t10k-images-idx3-ubyte").read_bytes()[16:], np.uint8).reshape(-1, 28, 28)
    labels = np.frombuffer((raw / "t10k-labels-idx1-ubyte").read_bytes()[8:], np.uint8)
    for sample in worst:
        image = images[sample["sample"]]
        low, high = image.min(), image.max()
        stretched = (image.astype(np.float64) - low) / (high - low) * 255
        assert sample["shape"] == [1, 28, 28] and sample["truth"] == labels[sample["sample"]]
        assert np.abs(np.frombuffer(bytes.fromhex(sample["pixels"]), np.uint8).reshape(28, 28) - stretched).max() <= 1
        assert 0 < sample["probability"] <= 1 and sample["loss"] > 0


def test_a_run_that_goes_on_keeps_its_earlier_attempts(lockstep, run, tmp_path):
    config = write_config(tmp_path, PIMA)
    for epochs in (1, 2, 3):
        run(lockstep, "train", config, "--resume", "auto", "--set", f"train.epochs={epochs}", cwd=tmp_path, env=ANY_CPU, check=True)
    folder = tmp_path / "runs/pima"
    attempts = json.loads((folder / "report.json").read_text())["attempts"]
    assert [one["number"] for one in attempts] == [1, 2, 3]
    assert [one["from_step"] for one in attempts] == [0, *[one["step"] for one in attempts][:2]]
    (folder / "report.json").write_text('{"attempts": [')
    result = run(lockstep, "train", config, "--resume", "auto", "--set", "train.epochs=4", cwd=tmp_path, env=ANY_CPU, check=True)
    assert "report.json is damaged" in result.output
    assert [one["number"] for one in json.loads((folder / "report.json").read_text())["attempts"]] == [4]


def test_runs_that_lockstep_0_1_left_are_read(lockstep, run, tmp_path):
    folders = sorted((SOURCE / "tests/fixtures/before-0.2/runs").iterdir())
    run(lockstep, "report", *folders, "--out", tmp_path / "all.html", check=True)
    (runs,) = [item["curves"] for item in data_of(tmp_path / "all.html")["Curves"]]
    assert any("loss" in (run["steps"] or {}) for run in runs) and {run["name"] for run in runs} == {folder.name for folder in folders}


@pytest.fixture
def shown(lockstep, run, tmp_path):
    """shown(REPORT) -> what the page of a run with that report.json shows, as text."""
    def show(report):
        (tmp_path / "status.json").write_text(json.dumps(dict(state="done", reason="epochs", step=20, epoch=2, epochs=2, attempt=1)))
        (tmp_path / "report.json").write_text(json.dumps(report))
        run(lockstep, "report", tmp_path, check=True)
        if not shutil.which("node"):
            pytest.skip("there is no node to run the page's script with")
        return run("node", SOURCE / "tests/e2e/page_text.js", tmp_path / "report.html", check=True).stdout
    return show


def test_runs_of_different_tasks_share_no_axis_and_a_run_that_acts_has_a_reward(shown, lockstep, run, tmp_path):
    assert "No step was logged." in shown({})
    for name, task, metrics, more in (("a", "mnist", '"accuracy":0.9', ""), ("b", "pi<ma>", '"reward":20', "optim:\n  lr: \"\"\n"),
                                      ("c", "mnist", '"eval_loss":0.5', "optim:\n  lr: 0.1\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(f"task:\n  name: {task}\n{more}")
        (tmp_path / name / "metrics.jsonl").write_text(f'{{"event":"epoch","epoch":0,"step":10,"train_loss":1,{metrics}}}\n')
    run(lockstep, "report", "a", "b", "c", "--out", "all.html", cwd=tmp_path, check=True)
    text = run("node", SOURCE / "tests/e2e/page_text.js", tmp_path / "all.html", check=True).stdout
    first, second = text.partition("Task mnist\n")[2].split("Task pi<ma>\n")
    assert first.startswith("Loss\n; a, training; c, training; c, evaluation\n") and "Accuracy\n" in first and "Reward" not in first
    assert second.startswith("Loss\n") and "Reward\n" in second
    assert "key|a|b|c|\ntask.name|mnist|pi<ma>|mnist|\noptim.lr|–|(empty)|0.1|\n" in text


def test_three_attempts_are_rows_and_a_killed_one_is_named(shown):
    text = shown({"attempts": [
        {"number": 1, "state": "stopped early", "reason": "SIGUSR1", "hosts": ["a", "b", "a"], "began": 1767225600, "ended": 1767225725.5},
        {"number": 2, "state": "running", "reason": "", "lost_seconds": 9.3, "lost_steps": 20},
        {"number": 3, "state": "done", "reason": "epochs", "job_id": "7", "scheduler": "slurm", "device": "cuda:0",
         "gpu_memory": {"peak": 1e10, "total": 8e10}}]})
    first, second, third = [line.split("|") for line in text.partition("|libtorch|\n")[2].splitlines()][:3]
    assert first[1:4] == ["2026-01-01 00:00:00", "", "2.09 min"] and first[5] == "stopped early: SIGUSR1" and first[7] == "a (2), b (1)"
    assert second[2] == "9.3 s, 20 steps again" and second[5] == "ended without a status"
    assert third[5] == "finished all epochs" and third[8:10] == ["slurm 7", "cuda:0, at most 10.00 of its 80 GB held"]


def test_what_was_told_right_is_not_among_the_wrong_and_only_whole_pixels_are_drawn(shown):
    text = shown({"evaluation": {"step": 1, "values": {"accuracy": 0.75, "loss": None}, "classes": ["cat", "dog"], "confusion": [[3, 1], [0, 4]], "worst": [
        {"sample": 11, "loss": 2, "truth": 0, "told": 1, "probability": 0.875, "shape": [1, 1, 2], "pixels": "00ff"},
        {"sample": 22, "loss": None, "truth": 1, "told": 1, "probability": 0.5}]}})
    assert "After step 1: accuracy 0.7500, loss no number\n" in text and "\ncat|3|1|75.0 %|\ndog|·|4|100.0 %|\n" in text
    wrong, right = text.partition("Wrong, with the highest loss\n")[2].split("Right, with the lowest confidence\n")
    assert wrong.startswith("image\ndog (88 %), is cat\nsample 11, loss 2.00\n") and right.startswith("dog (50 %), is dog\nsample 22, no number\n")
    numbers = {"values": {"mae": 24310.57}, "classes": ["price"], "points": [[1, 2], [3, 4]]}
    assert "mae 24311\nPredictions of price\n; samples (at most 500); exact\n" in shown({"evaluation": numbers})
    worst = [{"shape": [1, 1, 2], "pixels": "00"}, {"shape": [2, 1, 1], "pixels": "0000"}, {"shape": [1, 1, 1], "pixels": "x<"},
             {"shape": [1, 2 ** 62, 2], "pixels": "00"}, {"shape": [1, 0, 2], "pixels": ""}, {"shape": 7}]
    assert "image" not in shown({"evaluation": {"worst": worst}})


@pytest.mark.parametrize("report", [
    {"attempts": {"a": 1}, "evaluation": [1]},
    {"attempts": [1, "x", None, []], "evaluation": {"confusion": [1, [None]], "values": 7, "classes": {}, "worst": [1, None], "points": [1, [None, 2], ["x"]]}},
    {"attempts": [{"began": 1e300, "ended": -1e300, "hosts": 5, "state": [1], "phases": {"names": 7, "ranks": [7, [[]]]}}]},
    {"evaluation": {"worst": [{"truth": -1e300, "told": 1e300, "shape": [1, 2 ** 63 - 1, 2], "pixels": "00"}]}},
], ids=str)
def test_values_of_the_wrong_kind_do_not_stop_the_script(shown, report):
    assert "finished all epochs" in shown(report)


def test_under_a_launcher_there_is_one_report(mnist, lockstep, mpirun, tmp_path):
    result = mpirun(2, lockstep, "report", mnist, "--out", "page.html", cwd=tmp_path, check=True)
    assert result.stdout.split() == ["page.html"], result.output
