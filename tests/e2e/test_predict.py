"""`lockstep predict` and `eval` say what Python says of the same model: classes, probabilities, counts and loss."""

import csv
import gzip
import io
import json
import re
import shutil
import struct

import pytest

from conftest import run_process
from train_kit import DATA, MNIST, PIMA, assert_predicted, checkpoints, metrics, newest, sets, write_config, write_small_mnist

pytestmark = pytest.mark.about("cli", "tasks")

torch = pytest.importorskip("torch", reason="needs Python's torch to compare with")
numpy = pytest.importorskip("numpy")
pytest.importorskip("torchvision")
functional = torch.nn.functional

from peers import ddp_train  # noqa: E402

TESTED = 100  # digits to evaluate on


@pytest.fixture(scope="module")
def mnist_run(tmp_path_factory, lockstep):
    """A few steps on MNIST: (the run's folder, its config)."""
    folder = tmp_path_factory.mktemp("mnist")
    root = write_small_mnist(folder / "data", train=512, test=TESTED)
    config = write_config(folder, MNIST.replace(f"{DATA}/mnist", str(root)))
    run_process([lockstep, "train", config, *sets(train__max_steps=8, optim__lr=0.05, data__batch_size=64)], cwd=folder, check=True)
    return folder / "runs/mnist", config


@pytest.fixture(scope="module")
def pima_run(tmp_path_factory, lockstep):
    folder = tmp_path_factory.mktemp("pima")
    config = write_config(folder, PIMA)
    run_process([lockstep, "train", config, *sets(train__max_steps=30)], cwd=folder, check=True)
    return folder / "runs/pima", config


def digits(count):
    """The first digits to evaluate on: uint8 [count, 28, 28], and their labels."""
    def read(name, head):
        return numpy.frombuffer(gzip.decompress((DATA / f"mnist/t10k-{name}.gz").read_bytes())[head:], numpy.uint8)
    return read("images-idx3-ubyte", 16).reshape(-1, 28, 28)[:count], read("labels-idx1-ubyte", 8)[:count].copy()


def python_digits(state, images):
    """What the seed's SimpleCNN gives for them, through torchvision's own transforms."""
    prepare = ddp_train.transforms.Compose([ddp_train.transforms.ToTensor(), ddp_train.transforms.Normalize((0.1307,), (0.3081,))])
    return outputs_of(ddp_train.SimpleCNN(), state, torch.stack([prepare(image[:, :, None].copy()) for image in images]))


def outputs_of(model, state, x):
    model.load_state_dict(state)
    with torch.no_grad():
        return model(x)


def pima_table():
    return ddp_train.pima_table(DATA / "pima/pima-indians-diabetes.csv")


def assert_same_as_csv(document, text):
    """The JSON that predict wrote says what its CSV says."""
    rows = list(csv.reader(io.StringIO(text)))[1:]
    assert [[str(one["sample"]), one["class"], *one["probabilities"]] for one in document["predictions"]] == \
           [row[:2] + [pytest.approx(float(p), rel=1e-8) for p in row[2:]] for row in rows]
    assert all(one["label"] == int(one["class"]) for one in document["predictions"])


def test_predict_idx(mnist_run, lockstep, run, mpirun, tmp_path):
    folder, config = mnist_run
    images, _ = digits(37)
    data = struct.pack(">iiii", 2051, *images.shape) + images.tobytes()
    path = tmp_path / "digits"
    path.write_bytes(gzip.compress(data))
    words = ["predict", config, "--checkpoint", checkpoints(folder)[-1], "--input", path]
    printed = run(lockstep, *words, check=True).stdout
    assert_predicted(printed, python_digits(newest(folder)["model"], images).softmax(1), "0123456789")
    assert mpirun(2, lockstep, *words, check=True).stdout == printed
    assert_same_as_csv(json.loads(run(lockstep, *words, "--format", "json", check=True).stdout), printed)


def test_predict_a_png_of_colours(mnist_run, lockstep, run, tmp_path):
    pil = pytest.importorskip("PIL.Image")
    folder, config = mnist_run
    image = digits(3)[0][2]
    picture = pil.fromarray(numpy.stack([image, image[::-1], image.T], axis=2)).quantize(64)  # its gray depends on how it is made
    picture.save(tmp_path / "digit.png")
    result = run(lockstep, "predict", config, "--checkpoint", checkpoints(folder)[-1], "--input", tmp_path / "digit.png")
    if "without libpng" in result.stderr:
        pytest.skip(result.stderr)
    grey = numpy.array(picture.convert("L"))[None]
    assert_predicted(result.stdout, python_digits(newest(folder)["model"], grey).softmax(1), "0123456789")


def test_predict_csv(pima_run, lockstep, run, mpirun, tmp_path):
    folder, config = pima_run
    lines = (DATA / "pima/pima-indians-diabetes.csv").read_text().splitlines()
    path, out = tmp_path / "patients.csv", tmp_path / "answers.json"
    path.write_text("\n".join(line.rpartition(",")[0] for line in lines) + "\n")
    words = ["predict", config, "--checkpoint", folder, "--input", path]
    printed = mpirun(2, lockstep, *words, check=True).stdout
    assert_predicted(printed, outputs_of(ddp_train.PimaNet(), newest(folder)["model"], pima_table()[0]).softmax(1), "01")
    run(lockstep, *words, "--output", out, check=True)
    assert_same_as_csv(json.loads(out.read_text()), printed)


def written_by_python(state, folder):
    """The same model as Python's programs leave it: {name: path}."""
    safetensors = pytest.importorskip("safetensors.torch")
    wrapped = {f"module.{name}": tensor for name, tensor in state.items()}
    torch.save({"iter_no": 4, "model": wrapped}, folder / "ddp.pt")
    torch.save(state, folder / "plain.pt")
    safetensors.save_file(state, folder / "model.safetensors")
    return [folder / name for name in ("ddp.pt", "plain.pt", "model.safetensors")]


def test_a_runs_folder_is_read_where_its_device_is_not(pima_run, lockstep, run, tmp_path):
    """Trained on GPUs, read on a login node: the folder's config names what was there."""
    folder, _ = pima_run
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    config = (copy / "config.yaml").read_text()
    assert "device: cpu" in config and "backend: shared" in config
    (copy / "config.yaml").write_text(config.replace("device: cpu", "device: cuda").replace("backend: shared", "backend: nccl"))
    told, there = (run(lockstep, "eval", place, cwd=tmp_path, check=True).stdout.splitlines()[1:] for place in (folder, copy))
    assert told == there and told
    refused = run(lockstep, "eval", copy, "--set", "launch.device=cuda", cwd=tmp_path)
    assert refused.returncode == 2 and "has no GPU" in refused.stderr


def test_eval_counts_as_python_does(mnist_run, lockstep, mpirun, tmp_path):
    folder, config = mnist_run
    images, labels = digits(TESTED)
    state = newest(folder)["model"]
    logits = python_digits(state, images)
    table = torch.zeros(10, 10, dtype=torch.long)
    table.index_put_((torch.from_numpy(labels).long(), logits.argmax(1)), torch.tensor(1), accumulate=True)
    loss = functional.cross_entropy(logits, torch.from_numpy(labels).long()).item()
    assert 0 < table.trace() < TESTED
    for file, world in zip(written_by_python(state, tmp_path), (1, 1, 3)):
        text = mpirun(world, lockstep, "eval", config, "--checkpoint", file, check=True).stdout
        assert f"correct    {table.trace()} of {TESTED}\n" in text, text
        rows = [[int(cell) for cell in line.split()[1:]] for line in text.splitlines()
                if re.match(r"\s*\d(\s+\d+){10}$", line)]
        assert rows == table.tolist()
        assert float(re.search(r"loss +(\S+)", text)[1]) == pytest.approx(loss, abs=6e-5)


def test_eval_weighs_the_loss_as_python_does(lockstep, mpirun, tmp_path):
    """The mean over the set divides by the sum of the weights; the mean of the ranks' means is another number."""
    config = write_config(tmp_path, PIMA)
    words = sets(task__class_weights="balanced", train__max_steps=30)
    x, labels, train, kept = pima_table()
    counts = torch.bincount(labels[train])
    weights = len(train) / (2.0 * counts)
    for world, name in ((1, "pima"), (3, "pima-2")):
        mpirun(world, lockstep, "train", config, *words, cwd=tmp_path, check=True)
        folder = tmp_path / "runs" / name
        logits = outputs_of(ddp_train.PimaNet(), newest(folder)["model"], x[kept])
        wanted = functional.cross_entropy(logits, labels[kept], weight=weights).item()
        by_samples = functional.cross_entropy(logits, labels[kept], weight=weights, reduction="sum") / len(kept)
        assert abs(wanted - by_samples.item()) > 1e-4 * wanted  # or this test could not tell
        assert metrics(folder)[-1]["eval_loss"] == pytest.approx(wanted, rel=2e-6)
    text = mpirun(3, lockstep, "eval", config, *words, "--checkpoint", checkpoints(folder)[-1], check=True).stdout
    assert float(re.search(r"loss +(\S+)", text)[1]) == pytest.approx(wanted, abs=6e-5)


def test_a_checkpoint_of_a_newer_format_is_refused(pima_run, lockstep, mpirun, tmp_path):
    folder, config = pima_run
    content = newest(folder)
    assert content["lockstep"]["format"] == 1
    content["lockstep"]["format"] = 99
    torch.save(content, tmp_path / "newer.pt")
    for start in (["train", config, "--resume"], ["eval", config, "--checkpoint"]):
        result = mpirun(3, lockstep, *start, tmp_path / "newer.pt", cwd=tmp_path, quiet=True)
        assert result.returncode == 2 and result.stderr.count("format 99") == 1, result.output
    assert not (tmp_path / "runs").exists()
