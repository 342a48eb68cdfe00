"""`lockstep model` and `lockstep export --pt2`: a model goes from Python's torch.export to a run, and back."""

import json
import re
import zipfile

import pytest

from conftest import run_process
from train_kit import PIMA, checkpoints, newest, sets, write_config

pytestmark = pytest.mark.about("cli", "model_check", "exported")

torch = pytest.importorskip("torch", reason="needs Python's torch to export with")

HEAD = "import torch\nfrom torch import nn\n"

# folder: (arguments of `lockstep model template`, the user's model)
CASES = {
    "image": (["--eval", "--sample"], """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.2)
        self.fc = nn.Linear(4 * 26 * 26, 10)
    def forward(self, x):
        return self.fc(self.drop(torch.relu(self.norm(self.conv(x)))).flatten(1))
"""),
    "text": (["--input", "int64:?", "--input", "bool:?", "--sample", "--output", "text.pt2"], """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.again, self.fc = nn.Embedding(50, 8), nn.Embedding(50, 8), nn.Linear(8, 3)
        self.again.weight = self.words.weight
        self.unused = nn.Parameter(torch.ones(2))
        self.fc.bias.requires_grad_(False)
    def forward(self, words, mask):
        hidden = (self.words(words) + self.again(words)) * mask.unsqueeze(-1)
        return {"logits": self.fc(hidden.mean(1)), "hidden": hidden}
"""),
    "pima": (["--input", "float32:8", "--eval"], """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
    def forward(self, x):
        return self.body(x)
"""),
    "rounding": (["--input", "float32:4", "--sample"], """
class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)
    @staticmethod
    def backward(ctx, gradient):
        return gradient

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(3, 2)
    def forward(self, x):
        return self.b(Round.apply(3 * self.a(x)))
"""),
}

# each script in its own folder, beside its own my_model.py
RUN_ALL = """
import os, runpy, sys
for folder in sys.argv[1:]:
    os.chdir(folder)
    sys.modules.pop("my_model", None)
    sys.path[0] = folder
    runpy.run_path("export.py")
"""


@pytest.fixture(scope="module")
def made(lockstep, python, tmp_path_factory):
    """A folder with a folder for each of CASES, in which Python ran the script that the template is."""
    folder = tmp_path_factory.mktemp("made")
    for name, (words, model) in CASES.items():
        (folder / name).mkdir()
        (folder / name / "my_model.py").write_text(HEAD + model)
        script = run_process([lockstep, "model", "template", *words], check=True).stdout
        (folder / name / "export.py").write_text(script)
    run_process([python, "-c", RUN_ALL, *(folder / name for name in CASES)], check=True)
    return folder


@pytest.fixture
def check(lockstep, run):
    return lambda *words: run(lockstep, "model", "check", *words)


def test_check_says_what_a_model_holds_and_that_it_runs(made, check):
    result = check(made / "image/model.pt2")
    assert result.returncode == 0, result.output
    said = result.stdout
    assert f"torch {torch.__version__.partition('+')[0]}" in said and "6 parameters of 27098 numbers; 3 buffers\n" in said
    size = re.search(r"^input +x +float32 \[(\w+), 1, 28, 28\]$", said, re.M).group(1)
    assert re.search(rf"^output +linear\w* +float32 \[{size}, 10\]$", said, re.M)
    assert re.search(r"^note: .*model\.eval_path", said, re.M)


def test_check_has_the_same_for_programs(made, check):
    result = check(made / "text/text.pt2", "--json")
    assert result.returncode == 0, result.output
    said = json.loads(result.stdout)
    assert (said["schema"], said["parameters"], said["frozen"], said["buffers"]) == (1, 4, 1, 0)
    words, mask = said["inputs"]
    assert [(value["name"], value["kind"]) for value in (words, mask)] == [("words", "int64"), ("mask", "bool")]
    assert words["sizes"] == mask["sizes"] and set(words["sizes"]) == set(said["sizes"])  # both may change
    assert [len(value["sizes"]) for value in said["outputs"]] == [2, 3]
    assert said["train"] == {"trained": 3, "without_gradient": ["unused"]}


def test_an_eval_twin_is_tried_and_one_of_another_model_refused(made, check):
    result = check(made / "image/model.pt2", "--eval", made / "image/model.eval.pt2")
    assert result.returncode == 0 and "note: " not in result.stdout, result.output
    result = check(made / "image/model.pt2", "--eval", made / "pima/model.eval.pt2")
    assert result.returncode == 2 and str(made / "pima/model.eval.pt2") in result.stderr, result.output


def test_what_python_computed_is_computed_here(made, check):
    result = check(made / "text/text.pt2", "--against", made / "text/text.sample.pt")
    assert result.returncode == 0, result.output
    for number in range(2):
        assert f"output.{number}: the same bits\n" in result.stdout, result.output
    assert "2 gradients: the same bits\n" in result.stdout and "agrees with" in result.stdout, result.output


def test_a_backward_that_the_export_dropped_is_told(made, check):
    model = made / "rounding/model"
    result = check(f"{model}.pt2", "--against", f"{model}.sample.pt")
    assert result.returncode == 1, result.output
    assert "output.0: the same bits\n" in result.stdout
    assert re.search(r"^grad\.a\.weight: differs, .*: too much$", result.stdout, re.M), result.output
    assert "custom autograd.Function" in result.stdout and "does not agree with" in result.stdout
    said = json.loads(check(f"{model}.pt2", "--against", f"{model}.sample.pt", "--json").stdout)["against"]
    assert not said["agrees"] and said["lost_backward"]
    assert {one["name"] for one in said["tensors"] if not one["agrees"]} == {"grad.a.bias", "grad.a.weight"}


def test_a_sample_that_does_not_fit(made, check, tmp_path):
    sample = torch.load(made / "image/model.sample.pt")
    gradient, output = sample["grad.fc.weight"], sample["output.0"]
    for changed, status, says in (({"grad.fc.weight": gradient * 1.5}, 1, r"grad\.fc\.weight: differs, .*: too much"),
                                  ({"grad.fc.weight": gradient * (1 + 1e-6)}, 0, r"grad\.fc\.weight: differs, .*: within the tolerance"),
                                  ({"output.0": output[:, :9].clone()}, 1, r"output\.0: .*\[4, 9\]")):
        torch.save({**sample, **changed}, tmp_path / "sample.pt")
        result = check(made / "image/model.pt2", "--against", tmp_path / "sample.pt")
        assert result.returncode == status and re.search(says, result.output), result.output


# a run's weights, back in a .pt2

@pytest.fixture(scope="module")
def trained(lockstep, made, tmp_path_factory):
    """A folder with config.yaml and runs/pima, a few steps of the exported model."""
    folder = tmp_path_factory.mktemp("trained")
    config = write_config(folder, PIMA + f"model: {{name: exported, path: {made}/pima/model.pt2, "
                                         f"eval_path: {made}/pima/model.eval.pt2}}\n")
    run_process([lockstep, "train", config, *sets(train__max_steps=4)], cwd=folder, check=True)
    return folder


@pytest.fixture
def export(lockstep, run, trained, tmp_path):
    """export(ARG...) of the newest checkpoint, in an empty folder."""
    return lambda *words: run(lockstep, "export", trained / "config.yaml", "--checkpoint",
                              checkpoints(trained / "runs/pima")[-1], *words, cwd=tmp_path)


def records(path):
    """By name, without the archive's own folder."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None and len(set(archive.namelist())) == len(archive.namelist())
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def test_a_runs_weights_are_in_the_file_and_its_eval_twin(made, trained, export, check, tmp_path):
    (tmp_path / "out.pt2").write_text("something else, which makes room")
    result = export("--pt2", "out.pt2")
    assert result.returncode == 0 and "to out.eval.pt2" in result.output, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.eval.pt2", "out.pt2"]
    saved = newest(trained / "runs/pima")["model"]
    for name in ("model.pt2", "model.eval.pt2"):
        copy, original = tmp_path / name.replace("model", "out"), made / "pima" / name
        loaded = torch.export.load(copy).module().state_dict()
        assert set(loaded) == set(saved) and all(torch.equal(loaded[key], saved[key]) for key in saved)
        before, after = records(original), records(copy)
        assert set(before) == set(after)
        changed = {key for key in before if before[key] != after[key]}
        assert {key for key in changed if not key.startswith("data/weights/weight_")} <= {".data/serialization_id"}
    assert len(changed) > 4
    result = check(tmp_path / "out.pt2", "--eval", tmp_path / "out.eval.pt2")
    assert result.returncode == 0, result.output


def damaged(original, path):
    """A copy in which a byte of a weight is another one."""
    with zipfile.ZipFile(original) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data/weights/weight_0"))
        content = archive.read(name)
    whole = original.read_bytes()
    at = whole.index(content)
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
    return path


def test_what_cannot_be_written_is_refused_and_leaves_nothing(made, export, tmp_path):
    original = made / "pima/model.pt2"
    before = original.read_bytes()
    bad = damaged(original, tmp_path / "bad.pt2")
    for words, says in [
        (["--pt2", original], "this is the exported model itself"),
        (["--pt2", "out.pt2", *sets(model__path=made / "image/model.pt2")], "the checkpoint belongs to another model"),
        (["--pt2", "out.pt2", *sets(model__path=bad)], "data/weights/weight_0 is damaged in the archive"),
    ]:
        result = export(*words)
        assert result.returncode == 2 and says in result.stderr, result.output
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.pt2"]
    assert original.read_bytes() == before
