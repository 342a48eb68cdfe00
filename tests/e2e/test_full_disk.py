"""A run on a disk that is really full: it goes on or ends cleanly, and what was whole stays whole."""

import json
import struct

import pytest

from process_kit import fill, small_disk
from train_kit import PIMA, assert_same_tensors, checkpoints, metrics, newest, sets, status, write_config

pytestmark = pytest.mark.about("run_folder", "loop", "checkpoint")

torch = pytest.importorskip("torch", reason="needs Python's torch to load the checkpoints")

SIZE, FILLER = 2048 * 1024, 1792 * 1024  # a checkpoint takes 48 KiB
NO_SPACE = "No space left on device"


@pytest.fixture
def disk(tmp_path):
    """A folder on a file system of its own, most of it held by the file `filler`."""
    with small_disk(tmp_path / "disk", SIZE) as folder:
        (folder / "filler").write_bytes(bytes(FILLER))
        yield folder


@pytest.fixture
def config(disk, tmp_path):
    text = PIMA.replace("run: {name: pima}", f"run: {{name: pima, dir: {disk}/runs}}")
    return write_config(tmp_path, text.replace("checkpoint: {every_epochs: 1, keep: 3}",
                                               "checkpoint: {every_epochs: 0, every_steps: 5, keep: 0}"))


def assert_whole(folder):
    """No half checkpoint, no leftover, no half line."""
    assert all(torch.load(file, weights_only=True)["iter_no"] > 0 for file in checkpoints(folder))
    names = {file.name for file in (folder / "checkpoints").iterdir()} - {"best.pt"}
    assert names == {file.name for file in checkpoints(folder)}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        json.loads(line)


def test_a_full_disk_ends_the_run_cleanly_and_it_goes_on_with_room(disk, config, lockstep, mpirun, run, tmp_path):
    words = sets(train__epochs=3)
    result = mpirun(2, lockstep, "train", config, *words, cwd=tmp_path, quiet=True)
    folder = disk / "runs/pima"
    assert result.returncode == 1, result.output  # the last checkpoint could not be written
    assert NO_SPACE in result.stderr and "a checkpoint could not be written" in result.stderr, result.stderr
    assert "free disk space" in result.stderr and "terminate" not in result.stderr
    assert "Epoch 2 | Average Loss" in result.stdout  # trained to the end all the same
    assert not result.left_behind
    assert_whole(folder)
    last = newest(folder)["iter_no"]
    assert 0 < last < 60
    assert run(lockstep, "status", folder).returncode == 1
    (disk / "filler").unlink()
    mpirun(2, lockstep, "train", config, *words, *sets(checkpoint__keep=3), "--resume", folder, cwd=tmp_path, check=True)
    assert status(folder)["state"] == "done"
    assert_whole(folder)
    mpirun(2, lockstep, "train", config, *words, *sets(run__dir=tmp_path / "elsewhere"), cwd=tmp_path, check=True)
    assert_same_tensors(newest(folder)["model"], newest(tmp_path / "elsewhere/pima")["model"])


def records(path):
    """The lengths of an event file's records; fails where the last one is cut short."""
    data, at, lengths = path.read_bytes(), 0, []
    while at < len(data):
        lengths.append(struct.unpack_from("<Q", data, at)[0])
        at += 8 + 4 + lengths[-1] + 4
    assert at == len(data)
    return lengths


def test_no_half_lines_and_records(lockstep, run, tmp_path):
    """No file may grow past 6 KB: the line and the record that would cross that are not begun."""
    config = write_config(tmp_path, PIMA)
    words = sets(train__log_every=1, train__epochs=4, checkpoint__every_epochs=0)
    result = run("bash", "-c", 'ulimit -f 6; exec "$@"', "-", lockstep, "train", config, *words, cwd=tmp_path)
    folder = tmp_path / "runs/pima"
    assert result.returncode == 1 and "Training continues." in result.stderr, result.output
    assert_whole(folder)
    assert (folder / "metrics.jsonl").stat().st_size > 5900 and (folder / "metrics.jsonl").read_bytes()[-1:] == b"\n"
    assert sum(records(next(folder.glob("events.out.*")))) > 5000


def test_a_run_does_not_begin_on_a_full_disk(disk, config, lockstep, mpirun, tmp_path):
    fill(disk)
    result = mpirun(2, lockstep, "train", config, cwd=tmp_path, quiet=True)
    assert result.returncode == 1, result.output
    assert result.stderr.count("error") == 1 and NO_SPACE in result.stderr, result.stderr
    assert not result.left_behind
