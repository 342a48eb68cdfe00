"""Many ranks on one machine: start-up that works there, and whose log does not grow with the world."""

import pytest

from process_kit import LONG_PATIENCE
from train_kit import PIMA, checkpoints, sets, status, write_config

pytestmark = pytest.mark.about("comm/rendezvous", "launch")

def one_step(mpirun, lockstep, folder, world):
    """One step in a folder of its own -> (the lines that were printed, the run's folder)."""
    folder.mkdir()
    words = sets(data__batch_size=8, ddp__find_unused_parameters=True, train__max_steps=1, train__eval_every=0)
    result = mpirun(world, lockstep, "train", write_config(folder, PIMA), *words, cwd=folder, timeout=LONG_PATIENCE, check=True)
    runs = list((folder / "runs").iterdir())
    assert len(runs) == 1, runs
    return result.output.splitlines(), runs[0]


@pytest.mark.parametrize("world", [8, pytest.param(64, marks=pytest.mark.full)])
def test_many_ranks_leave_one_run_and_the_log_of_three(mpirun, lockstep, tmp_path, world):
    few, _ = one_step(mpirun, lockstep, tmp_path / "few", 3)
    many, run = one_step(mpirun, lockstep, tmp_path / "many", world)
    assert len(many) == len(few), "\n".join(many)
    assert status(run)["state"] == "done" and status(run)["world"] == world
    assert len(checkpoints(run)) == 1
