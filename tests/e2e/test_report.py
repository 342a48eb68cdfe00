"""lockstep report: one page of a run that says how it ended and needs nothing else; and job scripts that leave it."""

import json
import re

import pytest

from conftest import SOURCE, run_process
from train_kit import ANY_CPU, PIMA, write_config, write_small_mnist

pytestmark = pytest.mark.about("report")

MNIST = """
run: {{name: mnist}}
task: {{name: mnist}}
data: {{root: {root}, batch_size: 128, workers: 0}}
model: {{name: simple_cnn}}
optim: {{name: sgd, lr: 0.01, momentum: 0.9}}
train: {{epochs: 1, log_every: 1, eval_every: 1}}
"""


@pytest.fixture(scope="module")
def mnist(lockstep, mpiexec, tmp_path_factory):
    """A run of two ranks on a few images, and its report."""
    place = tmp_path_factory.mktemp("mnist")
    root = write_small_mnist(place / "data", train=1024, test=255)
    config = write_config(place, MNIST.format(root=root))
    run_process([mpiexec, "-n", 2, lockstep, "train", config], cwd=place, env=ANY_CPU, check=True)
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
    assert [item["chart"]["title"] for item in parts["Curves"]] == ["Loss", "Accuracy", "Learning rate", "Speed"]
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
        run(lockstep, "train", config, "--resume", "auto", "--set", f"train.epochs={epochs}", cwd=tmp_path, env=ANY_CPU,
            check=True)
    folder = tmp_path / "runs/pima"
    attempts = json.loads((folder / "report.json").read_text())["attempts"]
    assert [one["number"] for one in attempts] == [1, 2, 3]
    assert [one["from_step"] for one in attempts] == [0, *[one["step"] for one in attempts][:2]]
    (folder / "report.json").write_text('{"attempts": [')
    result = run(lockstep, "train", config, "--resume", "auto", "--set", "train.epochs=4", cwd=tmp_path, env=ANY_CPU,
                 check=True)
    assert "report.json is damaged" in result.output
    assert [one["number"] for one in json.loads((folder / "report.json").read_text())["attempts"]] == [4]


def test_runs_that_lockstep_0_1_left_are_read(lockstep, run, tmp_path):
    folders = sorted((SOURCE / "tests/fixtures/before-0.2/runs").iterdir())
    run(lockstep, "report", *folders, "--out", tmp_path / "all.html", check=True)
    charts = [item["chart"] for item in data_of(tmp_path / "all.html")["Curves"] if "chart" in item]
    assert "Loss" in [chart["title"] for chart in charts] and all(folder.name in str(charts) for folder in folders)


def test_under_a_launcher_there_is_one_report(mnist, lockstep, mpirun, tmp_path):
    result = mpirun(2, lockstep, "report", mnist, "--out", "page.html", cwd=tmp_path, check=True)
    assert result.stdout.split() == ["page.html"], result.output
