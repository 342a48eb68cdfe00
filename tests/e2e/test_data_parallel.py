"""DataParallel and model parallelism in the program, against a single device and against Python."""

import json

import pytest

from train_kit import MNIST, PIMA, checkpoints, newest, sets, write_config, write_small_mnist, losses

pytestmark = pytest.mark.about("parallel", "loop")

torch = pytest.importorskip("torch")

STEPS = dict(train__max_steps=8, train__log_every=1, data__batch_size=102)  # 102 = 4 * 26 - 2: no even chunks


@pytest.fixture(scope="session")
def mnist_root(once):
    return once("mnist_of_1000", lambda folder: write_small_mnist(folder, train=1000, test=100))


@pytest.fixture
def trained(lockstep, run, mnist_root, tmp_path):
    """trained(name, SETTINGS) -> the run's folder; `how` is run()'s."""
    def train(name, config=MNIST, **settings):
        root = {"data__root": mnist_root} if config is MNIST else {}
        run(lockstep, "train", write_config(tmp_path, config), *sets(run__name=name, **root, **settings), cwd=tmp_path, check=True)
        return tmp_path / "runs" / name
    return train


def python_losses(root):
    """A single device in Python with the same seed: nn.DataParallel without GPUs is the module itself."""
    from peers import ddp_train
    data = ddp_train.datasets.MNIST(root, train=True, transform=ddp_train.transforms.Compose([
        ddp_train.transforms.ToTensor(), ddp_train.transforms.Normalize((0.1307,), (0.3081,))]))
    torch.manual_seed(0)
    model = torch.nn.DataParallel(ddp_train.SimpleCNN())
    sampler = ddp_train.DistributedSampler(data, num_replicas=1, rank=0, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    found = []
    for images, labels in ddp_train.DataLoader(data, batch_size=STEPS["data__batch_size"], sampler=sampler):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found[:STEPS["train__max_steps"]]


@pytest.fixture(scope="session")
def wanted_losses(python, once, mnist_root):
    def make(folder):
        (folder / "losses.json").write_text(json.dumps(python_losses(mnist_root)))
    return json.loads((once("python_losses_of_1000", make) / "losses.json").read_text())


@pytest.mark.parametrize("devices, inside", [(2, False), (4, True)])
def test_losses_equal_a_single_devices_in_python(devices, inside, trained, wanted_losses):
    folder = trained("dp", train__mode="data_parallel", data_parallel__devices=devices,
                     data_parallel__loss_in_forward=inside, **STEPS)
    assert losses(folder) == pytest.approx(wanted_losses, rel=1e-5)


def test_class_weights_and_a_small_last_batch_are_weighed(trained):
    """154 samples of 614 are left over with four devices, some batches are smaller than others."""
    settings = dict(config=PIMA, data__batch_size=51, task__class_weights="balanced", train__label_smoothing=0.1,
                    train__epochs=1, train__log_every=1)
    alone = losses(trained("alone", train__mode="single", **settings))
    shared = losses(trained("shared", train__mode="data_parallel", data_parallel__devices=8,
                            data_parallel__loss_in_forward=True, **settings))
    assert len(alone) > 10 and shared == pytest.approx(alone, rel=1e-5)


WAYS = {
    "data_parallel": dict(train__mode="data_parallel"),
    "two_stage": dict(train__mode="ddp", model__name="two_stage", model__devices="[0, 1]"),
}


@pytest.mark.parametrize("way", ["data_parallel", pytest.param("two_stage", marks=pytest.mark.full)])
def test_files_go_both_ways(way, python, trained, lockstep, run, mnist_root, tmp_path):
    """Ours in Python, bare and wrapped; Python's in ours, with the prefix of one wrapper and of two."""
    from peers.ddp_train import SimpleCNN
    folder = trained("mine", train__max_steps=2, **WAYS[way])
    state = newest(folder)["model"]
    SimpleCNN().load_state_dict(state)
    wrapped = torch.nn.DataParallel(SimpleCNN())
    wrapped.module.load_state_dict(state)
    # as nn.DataParallel and DDP save themselves, and one around the other
    files = {"bare": (state, False), "wrapped": (wrapped.state_dict(), True),
             "twice": ({f"module.{name}": value for name, value in wrapped.state_dict().items()}, True)}
    wanted = None
    for name, (content, is_told) in files.items():
        torch.save(content, tmp_path / f"{name}.pt")
        settings = sets(data__root=mnist_root, **WAYS[way])
        result = run(lockstep, "eval", tmp_path / "config.yaml", *settings, "--checkpoint", tmp_path / f"{name}.pt",
                     cwd=tmp_path, check=True)
        assert ("module." in result.stderr) == is_told
        wanted = wanted or result.stdout.splitlines()[1:]
        assert result.stdout.splitlines()[1:] == wanted
    run(lockstep, "train", tmp_path / "config.yaml", "--resume", checkpoints(folder)[-1], cwd=tmp_path, check=True,
        *sets(data__root=mnist_root, run__name="on", train__max_steps=3, train__mode="single"))
    assert newest(tmp_path / "runs/on")["iter_no"] == 3


def test_bench_verifies_and_plots(lockstep, run, mnist_root, tmp_path):
    words = ["--config", write_config(tmp_path, MNIST), *sets(data__root=mnist_root, data__batch_size=32)]
    page = tmp_path / "dp.html"
    result = run(lockstep, "bench", "dp-vs-ddp", *words, "--steps", 2, "--repeats", 1, "--out", page, cwd=tmp_path, check=True)
    rows = [line for line in result.stdout.splitlines() if line.startswith(("dp", "ddp", "wide"))]
    assert "Losses of 5 steps agree" in result.stdout and "18.31" in result.stdout and len(rows) >= 5
    assert page.read_text().count('{"bars":') == 2
    wide = {line.split("  ")[0]: [float(word) for word in line.split("  ")[-1].split("|")]
            for line in rows if line.startswith("wide")}
    assert wide["wide"][0] > 2 * wide["wide"][1]
    assert wide["wide, loss inside"][0] < 1.5 * wide["wide, loss inside"][1]


def test_bench_under_a_launcher_is_one_bench(lockstep, mpirun, mnist_root, tmp_path):
    words = ["--config", write_config(tmp_path, MNIST), *sets(data__root=mnist_root, data__batch_size=32)]
    page = tmp_path / "dp.html"
    result = mpirun(2, lockstep, "bench", "dp-vs-ddp", *words, "--steps", 2, "--repeats", 1, "--out", page, cwd=tmp_path, check=True)
    assert result.stdout.count("Losses of") == 1 and "1 run of each variant" in result.stdout, result.output
    assert "Peak memory per device" in page.read_text()
