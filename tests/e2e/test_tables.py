"""Rows that a user adds to the open tables: each example of share/lockstep/examples, built against an installed
lockstep, trains to the bits of its Python twin; and a library that cannot be used says why."""

import json
import re

import pytest

from examples_kit import examples, precompiled  # noqa: F401  (fixtures)
from train_kit import assert_same_tensors, newest, python_ranks, sets

pytestmark = pytest.mark.about("options", "parallel", "tasks", "optim")

torch = pytest.importorskip("torch")

# the example's folder -> its library, the key that names it, the table it adds to
EXAMPLES = {
    "optimizer": ("lion", "optim.name", "optimizer"),
    "model": ("residual", "model.name", "model"),
    "comm_hook": ("clamped", "ddp.comm_hook", "comm hook"),
    "task": ("spirals", "task.name", "task"),
}


@pytest.fixture
def program(installed):
    return installed / "bin/lockstep"


@pytest.fixture
def built(examples):  # noqa: F811
    """built(name) -> the example's folder, with its library in build/."""
    return lambda name: examples / name


@pytest.fixture(scope="session")
def twins(python, source_dir, once):
    def train(out):
        python_ranks(python, 2, out, source_dir / "tests/e2e/peers/tables_twin.py",
                     "--pima", source_dir / "data/pima/pima-indians-diabetes.csv", "--out", out)
    return once("tables-twins", train)


@pytest.mark.full  # the examples are compiled
@pytest.mark.mpi
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_trains_to_the_bits_of_its_python_twin(name, built, twins, program, mpirun, tmp_path):
    row = EXAMPLES[name][0]
    folder = built(name)
    mpirun(2, program, "train", f"{row}.yaml", *sets(run__dir=tmp_path / "runs"), cwd=folder, check=True)
    mine = newest(tmp_path / "runs" / row)
    peer = torch.load(twins / f"{row}.pt", weights_only=True)
    assert_same_tensors(dict(mine["model"]), dict(peer["model"]))
    assert_same_tensors(mine["optimizer"]["state"], peer["state"])
    assert mine["optimizer"]["param_groups"][0]["lr"] == peer["lr"]


@pytest.mark.full
def test_config_schema_and_reference_name_it_with_its_default_options(built, program, run):
    folder = built("optimizer")
    shown = run(program, "config", "lion.yaml", cwd=folder, check=True).stdout
    assert re.search(r"^  name: build/lion.so", shown, re.M) and re.search(r"weight_decay: 0.01 +# default", shown), shown
    schema = json.loads(run(program, "config", "lion.yaml", "--schema", cwd=folder, check=True).stdout)
    assert "lion" in schema["properties"]["optim"]["properties"]["name"]["anyOf"][0]["enum"]
    reference = run(program, "config", "lion.yaml", "--reference", cwd=folder, check=True).stdout
    assert re.search(r"^\| `lion` \| .*lion\.so\)", reference, re.M), reference


@pytest.mark.mpi
@pytest.mark.parametrize("name, trouble", [("optimizer", "other"), ("task", "old"), ("comm_hook", "absent"), ("model", "nothing")])
def test_what_cannot_be_used_says_why_once(name, trouble, build_dir, program, mpirun, tmp_path):
    row, key, kind = EXAMPLES[name]
    library, words = {
        "absent": (tmp_path / "absent.so", "No such file"),
        "nothing": (next(build_dir.glob("**/no_task.so")), f"has no {kind}"),
        "old": (next(build_dir.glob("**/other_abi_task.so")), "built for another version of lockstep"),
        "other": (next(build_dir.glob("**/other_rows.so")), "built for another version of lockstep"),
    }[trouble]
    config = tmp_path / "own.yaml"
    config.write_text("task: {name: pima}\n")
    result = mpirun(2, program, "train", config, "--set", f"{key}={library}", cwd=tmp_path, quiet=True)
    assert result.returncode == 2, result.output
    assert result.stderr.count("error:") == 1 and result.stderr.count(words) == 1, result.output
    assert not (tmp_path / "runs").exists()


@pytest.mark.full
@pytest.mark.mpi
def test_a_library_that_is_another_on_one_rank_is_refused(built, program, mpirun, tmp_path):
    """As an older build left on one node: it would train something else there, and nobody would see it."""
    script = tmp_path / "rank.sh"
    script.write_text('cd "$1/$OMPI_COMM_WORLD_RANK$PMI_RANK"; shift; exec "$@"\n')
    library = (built("optimizer") / "build/lion.so").read_bytes()
    for rank, content in enumerate((library, library + b"\0")):
        (tmp_path / str(rank)).mkdir()
        (tmp_path / str(rank) / "lion.so").write_bytes(content)
    (tmp_path / "0/c.yaml").write_text("task: {name: pima}\noptim: {name: ./lion.so}\n")
    result = mpirun(2, "bash", script, tmp_path, program, "train", "c.yaml", quiet=True)
    assert result.returncode == 2, result.output
    assert "the library of optimizer lion" in result.stderr and result.stderr.count("error:") == 1
    assert not list(tmp_path.glob("*/runs"))
