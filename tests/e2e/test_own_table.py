"""A table as people have them, with the keys that they know on their first day: which column is the label, labels that are large
numbers, cells without a value."""

import csv
import io
import json
import random
import re

import pytest

from train_kit import checkpoints, metrics, sets

pytestmark = pytest.mark.about("data", "tasks", "loop")

CONFIG = """
run: {name: own}
task: {name: csv, file: t.csv}
data: {batch_size: 8, workers: 0}
model: {name: mlp, hidden: [8]}
train: {epochs: 2, eval_every: 1}
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "own.yaml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
def train(place, lockstep, run):
    """train("--resume", "auto", task__kind="regression") -> Result, in the folder."""
    return lambda *words, **settings: run(lockstep, "train", "own.yaml", *words, *sets(**settings), cwd=place)


def write_table(path, header, rows):
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in (header, *rows)))
    return path


def chosen(folder, key):
    return re.search(rf"^  {key}: (.*)$", (folder / "config.yaml").read_text(), re.M)[1]


def flowers(count=80):
    draw = random.Random(1)
    for i in range(count):
        yield (("rose", "tulip")[i % 2], *(f"{draw.gauss(i % 2, 0.2):.3f}" for _ in range(3)))


def test_the_column_called_label_is_the_label_and_stays_it(train, place, lockstep, run, mpirun):
    write_table(place / "t.csv", ("Label", "a", "b", "c"), flowers())
    result = train(train__max_steps=4)
    assert result.returncode == 0 and "label: Label (column 0)" in result.stderr, result.output
    assert "train: 64 samples; rose: 32" in result.stderr
    assert chosen(place / "runs/own", "label") == "Label"
    # a new run would take the last column now; this one knows its own
    write_table(place / "t.csv", ("Label", "a", "b", "class"), flowers())
    result = train("--resume", "auto")
    assert result.returncode == 0 and "resuming after step 4" in result.stderr, result.output
    assert "label: Label (column 0)" in result.stderr and "label: class" not in result.stderr
    told = run(lockstep, "eval", "own.yaml", "--checkpoint", "runs/own", cwd=place, check=True).stdout
    assert "on 16 samples" in told and "rose" in told
    assert mpirun(3, lockstep, "eval", "own.yaml", "--checkpoint", "runs/own", cwd=place, check=True).stdout == told
    # packed: pack replaces no file, and a run on a pack is evaluated on any file
    pack = [lockstep, "data", "pack", "own.yaml", *sets(task__label="Label"), "--out", "t.pack"]
    assert run(*pack, cwd=place).returncode == 0 and run(*pack, cwd=place).returncode == 2
    result = train(task__file="t.pack", task__label="Label", run__name="packed")
    assert result.returncode == 0, result.output
    write_table(place / "new.csv", ("Label", "a", "b", "class"), flowers(10))
    words = ["--checkpoint", "runs/packed", *sets(task__file="t.pack", task__eval_file="new.csv")]
    assert "on 10 samples" in run(lockstep, "eval", "own.yaml", *words, cwd=place, check=True).stdout


def prices(count=300):
    """A number around 300,000 that follows from two others, and whole, as prices are."""
    draw = random.Random(2)
    for _ in range(count):
        rooms, age = draw.randint(1, 9), draw.uniform(0, 50)
        yield rooms, f"{age:.2f}", round(200_000 + 40_000 * rooms - 2_000 * age + draw.gauss(0, 1000))


def test_a_regression_on_large_numbers_learns_at_the_defaults(train, place, lockstep, run, mpirun):
    write_table(place / "t.csv", ("rooms", "age", "price"), prices())
    result = train(task__kind="regression", train__epochs=20)
    assert result.returncode == 0, result.output
    folder = place / "runs/own"
    last = [row for row in metrics(folder) if row["event"] == "epoch"][-1]
    assert last["mae"] < 20_000 and last["eval_loss"] < 0.1, last  # the prices' deviation is 107,000
    assert last["mse"] == pytest.approx(last["eval_loss"] * 107_000**2, rel=0.2) and 0.9 < last["r2"] < 1
    points = json.loads((folder / "report.json").read_text())["evaluation"]["points"]
    assert len(points) == 60 and all(abs(told - truth) < 100_000 for truth, told in points) and round(points[0][0]) in {row[2] for row in prices()}
    assert chosen(folder, "normalize_label") == "standard"
    # eval, at any number of ranks, and predict answer in the label's unit
    words = ["own.yaml", *sets(task__kind="regression"), "--checkpoint", checkpoints(folder)[-1]]
    told = run(lockstep, "eval", *words, cwd=place, check=True).stdout
    assert float(re.search(r"mae +(\S+)", told)[1]) == pytest.approx(last["mae"], rel=1e-4)
    shared = mpirun(3, lockstep, "eval", *words, cwd=place, check=True).stdout
    assert float(re.search(r"mae +(\S+)", shared)[1]) == pytest.approx(last["mae"], rel=1e-4)
    answers = list(csv.DictReader(io.StringIO(run(lockstep, "predict", *words, "--input", "t.csv", cwd=place, check=True).stdout)))
    errors = [abs(float(answer["value"]) - row[2]) for answer, row in zip(answers, prices())]
    assert sum(errors) / len(errors) < 20_000


def passengers(count=60):
    draw = random.Random(3)
    for i in range(1, count + 1):
        age = "" if i % 7 == 0 else f"{draw.gauss(30 + 20 * (i % 2), 3):.1f}"
        yield i, ("male", "female")[i % 2], age, "NA" if i % 20 == 0 else i % 5, f"Name {i}", i % 2


PASSENGERS = ("id", "sex", "age", "deck", "name", "survived")


@pytest.mark.parametrize("rule, said", [("drop", "11 of 60 rows omitted, cells without a value: age 8, deck 3"),
                                        ("mean", "cells without a value: age 8, deck 3, filled in")])
def test_cells_without_a_value_are_left_out_or_filled_in(rule, said, train, place, lockstep, run, mpirun):
    write_table(place / "t.csv", PASSENGERS, passengers())
    settings = {"task__ignore": "[name]", "task__categories": "[sex]", "task__missing": rule}
    result = train(**settings)
    assert result.returncode == 0 and said in result.stderr and "like an id: id" in result.stderr, result.output
    words = ["own.yaml", *sets(**settings), "--checkpoint", "runs/own"]
    assert said in mpirun(3, lockstep, "eval", *words, cwd=place, check=True).stderr
    write_table(place / "new.csv", ("id", "age", "sex", "deck"), [(1, "", "male", 2), (2, 30, "female", "?")])
    result = run(lockstep, "predict", *words, "--input", "new.csv", cwd=place)
    assert result.returncode == (0 if rule == "mean" else 2), result.output
