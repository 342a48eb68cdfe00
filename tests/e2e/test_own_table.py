"""A table as people have them, with the keys that they know on their first day: which column is the label."""

import random
import re

import pytest

from train_kit import sets

pytestmark = pytest.mark.about("data", "tasks", "loop")

CONFIG = """
run: {name: own}
task: {name: csv, file: t.csv}
data: {batch_size: 8, workers: 0}
model: {name: mlp, hidden: [8]}
train: {epochs: 2, eval_every: 1}
"""


def write_flowers(path, header):
    draw = random.Random(1)
    rows = [(("rose", "tulip")[i % 2], *(f"{draw.gauss(i % 2, 0.2):.3f}" for _ in range(2)), f"{i}") for i in range(80)]
    path.write_text("".join(",".join(row) + "\n" for row in (header, *rows)))


def test_the_column_called_label_is_the_label_and_stays_it(lockstep, run, mpirun, tmp_path):
    (tmp_path / "own.yaml").write_text(CONFIG)
    write_flowers(tmp_path / "t.csv", ("Label", "a", "b", "c"))
    said = run(lockstep, "train", "own.yaml", *sets(train__max_steps=4, data__resident=True), cwd=tmp_path, check=True).stderr
    assert "label: Label (column 0)" in said and "train: 64 samples; class rose: 32" in said, said
    assert "like an id: c " in said and "the training set is resident on cpu" in said, said
    assert re.search("^  label: Label$", (tmp_path / "runs/own/config.yaml").read_text(), re.M)
    # a new run would take the last column now; this one knows its own
    write_flowers(tmp_path / "t.csv", ("Label", "a", "b", "class"))
    said = run(lockstep, "train", "own.yaml", "--resume", "auto", cwd=tmp_path, check=True).stderr
    assert "resuming after step 4" in said and "label: Label (column 0)" in said and "label: class" not in said, said
    told = run(lockstep, "eval", "own.yaml", "--checkpoint", "runs/own", cwd=tmp_path, check=True).stdout
    assert "on 16 samples" in told and "rose" in told
    assert mpirun(3, lockstep, "eval", "own.yaml", "--checkpoint", "runs/own", cwd=tmp_path, check=True).stdout == told
    # packed: pack replaces no file, and a run on a pack is evaluated on any file
    pack = [lockstep, "data", "pack", "own.yaml", *sets(task__label="Label"), "--out", "t.safetensors"]
    assert [run(*pack, cwd=tmp_path).returncode for _ in range(2)] == [0, 2]
    words = sets(task__file="t.safetensors", task__label="Label")
    run(lockstep, "train", "own.yaml", *words, *sets(run__name="packed"), cwd=tmp_path, check=True)
    write_flowers(tmp_path / "new.csv", ("Label", "a", "b", "class"))
    words = ["--checkpoint", "runs/packed", *words, *sets(task__eval_file="new.csv")]
    assert "on 80 samples" in run(lockstep, "eval", "own.yaml", *words, cwd=tmp_path, check=True).stdout
