"""Ranks that share a model's layers learn what plain ranks do, and leave ordinary checkpoints."""

import sys

import pytest

from conftest import SOURCE
from train_kit import metrics, newest, sets, write_config, write_small_mnist, losses

pytestmark = pytest.mark.about("parallel", "loop")

torch = pytest.importorskip("torch")

MODELS = {
    "mlp": "{name: mlp, hidden: [64, 32]}",
    # its norms share the tokens, and what it drops is drawn for the whole
    "bert_layer": "{name: bert_layer, options: {width: 32, heads: 4, intermediate: 64, dropout: 0.1}}",
    "bert_twin": "{name: bert_layer, options: {width: 32, heads: 4, intermediate: 64}}",
}
CONFIG = """
run: {{name: {name}}}
task: {{name: mnist}}
data: {{root: {root}, batch_size: 16, workers: 0}}
model: {model}
optim: {{name: adam, lr: 0.001}}
train: {{epochs: 1, log_every: 1, eval_every: 1, clip_norm: 0.5}}
"""
MESH = sets(parallel__data=2, parallel__tensor=2, parallel__sequence=True)


@pytest.fixture(scope="session")
def root(once):
    return once("mnist_of_640", lambda folder: write_small_mnist(folder, train=640, test=99))  # 20 steps of 2 x 16


@pytest.fixture
def train(lockstep, mpirun, root, tmp_path):
    """train(ranks, model, SET..., name=, resume=) -> the run's folder."""
    def run(ranks, model, *words, name, resume=None):
        config = write_config(tmp_path, CONFIG.format(name=name, root=root, model=MODELS[model]))
        more = ["--resume", resume] if resume else []
        mpirun(ranks, lockstep, "train", config, *words, *more, cwd=tmp_path, check=True)
        return tmp_path / "runs" / name
    return run


def assert_close_models(left, right):
    left, right = newest(left)["model"], newest(right)["model"]
    assert list(left) == list(right)
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], rtol=1e-3, atol=1e-4, msg=lambda text: f"{name}: {text}")


@pytest.mark.parametrize("model, backend", [("bert_layer", "mpi"), pytest.param("mlp", "gloo", marks=pytest.mark.full)])
def test_a_mesh_learns_what_plain_ranks_do(model, backend, train):
    plain = train(2, model, name="plain")
    mesh = train(4, model, *MESH, *sets(launch__backend=backend), name="mesh")
    assert len(losses(mesh)) == 20
    assert losses(mesh) == pytest.approx(losses(plain), abs=1e-5)
    assert metrics(mesh)[-1]["eval_loss"] == pytest.approx(metrics(plain)[-1]["eval_loss"], abs=1e-5)
    assert_close_models(mesh, plain)
    assert {file.name for file in (mesh / "checkpoints").iterdir()} == {"best.pt", "step-00000020.pt"}


def test_python_alone_learns_what_a_shared_bert_layer_does(train, root):
    """One process of Python beside two ranks that share each layer and the norms' tokens, and no data."""
    sys.path.insert(0, str(SOURCE / "tests/models"))
    from models_peer import BertLayerNet
    from torchvision import datasets, transforms
    shared = train(2, "bert_twin", *sets(parallel__tensor=2, parallel__sequence=True, data__shuffle=False), name="shared")
    torch.manual_seed(0)
    model = BertLayerNet(rows=28, numbers=28, classes=10, width=32, heads=4, intermediate=64)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    treat = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    batches = torch.utils.data.DataLoader(datasets.MNIST(root, transform=treat), batch_size=16)
    expected = []
    for images, labels in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        expected.append(loss.item())
    assert len(expected) == 40
    assert losses(shared) == pytest.approx(expected, abs=1e-5)
    # what the mesh leaves is what Python's own classes take
    saved = newest(shared)
    model.load_state_dict(saved["model"], strict=True)
    optimizer.load_state_dict(saved["optimizer"])
