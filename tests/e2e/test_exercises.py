"""Each exercise of the course, proven: unsolved, solved and with typical wrong answers it is told what its master says."""

import json
import zipfile

import pytest

from conftest import SOURCE, run_process
from process_kit import LONG_PATIENCE

pytestmark = pytest.mark.about("workshop", "tutorials", "lesson")

NAMES = sorted(path.stem for path in (SOURCE / "tutorials/masters").glob("*")
               if path.suffix in (".cpp", ".yaml", ".pbs", ".slurm", ".sh"))
# one of each kind, two wrong answers: a function, a training that goes on, a config, the workshop's own program
ONE_OF_EACH = ("groups.1", "resume.1", "compare.1", "distributed_data_parallel")
QUICK = [pytest.param(name, 2, id=f"{name}-few") for name in ONE_OF_EACH]
ALL = [pytest.param(name, 99, id=f"{name}-all", marks=pytest.mark.full) for name in NAMES]


@pytest.mark.parametrize("name, wrong", QUICK + ALL)
def test_every_answer_is_told_what_its_master_says(name, wrong, prepared):
    result = run_process([prepared, "workshop", "prove", name, "--wrong", wrong], timeout=LONG_PATIENCE)
    assert result.returncode == 0, result.stdout + result.stderr


def operators_of(path):
    """Of the graph in a file of torch.export.save, in order."""
    with zipfile.ZipFile(path) as file:
        name = next(name for name in file.namelist() if name.endswith("models/model.json"))
        return [node["target"] for node in json.loads(file.read(name))["graph_module"]["graph"]["nodes"]]


def test_the_models_of_the_course_are_what_their_script_writes(python, tmp_path):
    run_process([python, SOURCE / "tutorials/models/line.py"], cwd=tmp_path, check=True)
    made = sorted(tmp_path.glob("*.pt2"))
    assert [path.name for path in made] == [path.name for path in sorted((SOURCE / "tutorials/models").glob("*.pt2"))]
    assert [operators_of(path) for path in made] == [operators_of(SOURCE / "tutorials/models" / path.name) for path in made]
