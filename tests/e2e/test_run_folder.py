"""A run's folder that is removed while the run uses it."""

import shutil
import subprocess

import pytest

from process_kit import PATIENCE, wait_for
from test_signals import ENDLESS, lines_of
from train_kit import PIMA, checkpoints, write_config

pytestmark = pytest.mark.about("run_folder")


def test_a_removed_folder_ends_the_run(lockstep, start, tmp_path):
    folder = tmp_path / "runs/pima"
    job = start(lockstep, "train", write_config(tmp_path, PIMA), *ENDLESS, cwd=tmp_path, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True)
    wait_for(lambda: lines_of(folder) > 10 and checkpoints(folder))
    folder.rename(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "elsewhere")
    assert job.wait(PATIENCE) == 1
    assert "was removed while it trained" in job.stderr.read()
    assert not folder.exists()
