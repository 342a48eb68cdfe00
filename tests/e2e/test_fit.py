"""What must fit together: a model's output and the classes, a label and its kind, an answer and where it goes."""

import csv
import io
import json
import re

import pytest

from train_kit import assert_same_tensors, checkpoints, metrics, newest, sets, write_config

pytestmark = pytest.mark.about("loop", "tasks", "models")

torch = pytest.importorskip("torch", reason="needs Python's torch to compare with")

CLASSES = 10
ROWS = 100


class Net(torch.nn.Module):
    """Has what a dry batch could disturb: running means, and dropout's random numbers."""

    def __init__(self, outputs: int):
        super().__init__()
        self.first = torch.nn.Linear(3, 16)
        self.norm = torch.nn.BatchNorm1d(16)
        self.drop = torch.nn.Dropout(0.25)
        self.last = torch.nn.Linear(16, outputs)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


def saved(folder, outputs):
    torch.manual_seed(5)
    path = folder / f"net{outputs}.pt"
    torch.jit.script(Net(outputs)).save(str(path))
    return path


def write_table(path, features, labels):
    path.write_text("a,b,c,label\n" + "".join(
        ",".join(map(repr, row)) + f",{label}\n" for row, label in zip(features.tolist(), labels)))
    return path


def numbers(seed, rows=ROWS):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator)
    return x, (x @ torch.tensor([[2.0], [-1.0], [0.5]])).sin() + 0.1 * torch.randn(rows, 1, generator=generator)


@pytest.fixture
def classes_config(tmp_path):
    x, _ = numbers(1)
    write_table(tmp_path / "t.csv", x, [i % CLASSES for i in range(ROWS)])
    return write_config(tmp_path, "run: {name: fit}\ntask: {name: csv, file: t.csv}\ndata: {batch_size: 8, workers: 0}\n"
                                  "train: {epochs: 1}\n")


def test_a_model_of_another_width_is_refused_at_the_start(classes_config, lockstep, run, mpirun, tmp_path):
    script = sets(model__name="torchscript", model__path=saved(tmp_path, 7))
    result = mpirun(2, lockstep, "train", classes_config, *script, cwd=tmp_path, quiet=True)
    assert result.returncode == 2, result.output
    assert result.stderr.count("returns 7 numbers per sample, but the data has 10 classes") == 1, result.stderr
    assert "net7.pt" in result.stderr and "hint:" in result.stderr
    wide = torch.nn.Sequential(torch.nn.Linear(4, CLASSES))
    torch.jit.script(wide).save(str(tmp_path / "wide.pt"))
    result = run(lockstep, "train", classes_config, *sets(model__name="torchscript", model__path=tmp_path / "wide.pt"), cwd=tmp_path)
    assert result.returncode == 2 and "does not accept the task's samples" in result.stderr, result.output
    assert not (tmp_path / "runs").exists()


def python_regression(folder, epochs):
    """The plain program: what lockstep's bits and metrics are held to. On one thread, as BatchNorm's sums depend on it."""
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
    train, held = TensorDataset(*numbers(1)), TensorDataset(*numbers(2, 37))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.jit.load(str(saved_once(folder)))
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    sampler = DistributedSampler(train, num_replicas=1, rank=0, seed=0)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(train, batch_size=16, sampler=sampler):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            outputs = torch.cat([model(x) for x, _ in DataLoader(held, batch_size=16)])
        model.train()
    error = (outputs.double() - held.tensors[1].double())
    return model, outputs, error.square().mean().item(), error.abs().mean().item()


def saved_once(folder):
    path = folder / "net1.pt"
    return path if path.exists() else saved(folder, 1)


def test_regression_is_pythons(lockstep, run, mpirun, tmp_path):
    """Trained, evaluated and predicted; the model's running means and dropout show that no dry batch is felt."""
    write_table(tmp_path / "t.csv", numbers(1)[0], numbers(1)[1].flatten().tolist())
    held = write_table(tmp_path / "e.csv", numbers(2, 37)[0], numbers(2, 37)[1].flatten().tolist())
    config = write_config(tmp_path, f"""
run: {{name: fit}}
task: {{name: csv, kind: regression, file: t.csv, eval_file: e.csv, normalize: none}}
data: {{batch_size: 16, workers: 0}}
model: {{name: torchscript, path: {saved_once(tmp_path)}}}
optim: {{name: sgd, lr: 0.01, momentum: 0.9}}
train: {{epochs: 2}}
""")
    run(lockstep, "train", config, cwd=tmp_path, env={"OMP_NUM_THREADS": "1"}, check=True)
    model, outputs, mse, mae = python_regression(tmp_path, epochs=2)
    folder = tmp_path / "runs/fit"
    state = dict(newest(folder)["model"])
    assert_same_tensors({name: state[name] for name in model.state_dict()}, dict(model.state_dict()))
    last = metrics(folder)[-1]
    assert "accuracy" not in last or last["accuracy"] is None
    assert (last["mse"], last["mae"], last["eval_loss"]) == (pytest.approx(mse), pytest.approx(mae), pytest.approx(mse))

    (tmp_path / "t.csv").unlink()  # eval reads no training set
    text = mpirun(3, lockstep, "eval", config, "--checkpoint", checkpoints(folder)[-1], cwd=tmp_path, check=True).stdout
    assert float(re.search(r"mae +(\S+)", text)[1]) == pytest.approx(mae, abs=6e-5)
    words = ["predict", config, "--checkpoint", checkpoints(folder)[-1], "--input", held]
    rows = list(csv.reader(io.StringIO(run(lockstep, *words, cwd=tmp_path, check=True).stdout)))
    assert rows[0] == ["sample", "value"]
    assert torch.tensor([float(row[1]) for row in rows[1:]]).allclose(outputs.flatten(), atol=1e-6)
    run(lockstep, *words, "--output", tmp_path / "o.json", cwd=tmp_path, check=True)
    assert [one["value"] for one in json.loads((tmp_path / "o.json").read_text())["predictions"]] == \
           [pytest.approx(float(row[1]), rel=1e-6) for row in rows[1:]]
    result = run(lockstep, *words, "--set", "task.kind=classification", cwd=tmp_path)
    assert result.returncode == 2 and "another task.kind" in result.stderr, result.output
