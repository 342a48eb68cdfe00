"""Each exercise of the course, proven: unsolved, solved and with typical wrong answers it is told what its master says."""

import pytest

from conftest import SOURCE, run_process
from process_kit import LONG_PATIENCE

pytestmark = pytest.mark.about("checks", "workshop", "tutorials", "lesson")

NAMES = sorted(path.stem for path in (SOURCE / "tutorials/masters").glob("*")
               if path.suffix in (".cpp", ".yaml", ".pbs", ".slurm", ".sh"))
# two that are compiled, job scripts, a shell script and configs, with one wrong answer each
FEW = [pytest.param(name, 1, id=f"{name}-one") for name in (
    "compare.1", "ddp.1", "overlap.3", "resume.3", "sampler.1", "scale.4", "start.2", "start.3", "start.4")]
ALL = [pytest.param(name, 99, id=f"{name}-all", marks=pytest.mark.full) for name in NAMES]


@pytest.mark.parametrize("name, wrong", FEW + ALL)
def test_every_answer_is_told_what_its_master_says(name, wrong, prepared):
    result = run_process([prepared, "workshop", "prove", name, "--wrong", wrong], timeout=LONG_PATIENCE)
    assert result.returncode == 0, result.stdout + result.stderr
