"""lockstep's parameters equal those of the plain Python DDP program, bit for bit."""

import gzip
import json
import re
import shutil

import pytest

from train_kit import MNIST, assert_same_tensors, checkpoints, newest, sets, write_config

torch = pytest.importorskip("torch")

# name -> (the Python program's variant, lockstep's settings)
VARIANTS = {
    "plain": (dict(max_steps=8, evaluate=True), dict(train__max_steps=8, train__eval_every=1)),
    "adam_one_cycle": (dict(batch=64, max_steps=5, optim="adam", schedule="one_cycle"),
                       dict(data__batch_size=64, train__max_steps=5, optim__name="adam", schedule__name="one_cycle",
                            schedule__max_lr=0.05)),
    "accumulate_clip": (dict(batch=32, max_steps=5, accumulate=3, clip=0.5, smoothing=0.1),
                        dict(data__batch_size=32, train__max_steps=5, train__accumulate=3, train__clip_norm=0.5,
                             train__label_smoothing=0.1)),
    "bf16": (dict(batch=32, max_steps=5, bf16=True),
             dict(data__batch_size=32, train__max_steps=5, train__precision="bf16")),
    "channels_last": (dict(batch=32, max_steps=5, channels_last=True),
                      dict(data__batch_size=32, train__max_steps=5, train__layout="channels_last")),
}


@pytest.fixture(scope="module")
def torchvision_root(tmp_path_factory, source_dir):
    root = tmp_path_factory.mktemp("mnist")
    raw = root / "MNIST/raw"
    raw.mkdir(parents=True)
    for packed in (source_dir / "data/mnist").glob("*.gz"):
        with gzip.open(packed) as source, open(raw / packed.stem, "wb") as target:
            shutil.copyfileobj(source, target)
    return root


@pytest.fixture(scope="module")
def peers(tmp_path_factory, torchvision_root, python, source_dir):
    """Each variant as Python at world 2 trains it."""
    from conftest import run_process
    out = tmp_path_factory.mktemp("python")
    (out / "variants.json").write_text(json.dumps({name: variant for name, (variant, _) in VARIANTS.items()}))
    run_process([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2,
                 source_dir / "tests/e2e/peers/ddp_train.py", "--data", torchvision_root,
                 "--variants", out / "variants.json", "--out", out], timeout=240, check=True)
    return {name: torch.load(out / f"{name}.pt", weights_only=True) for name in VARIANTS}


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_equal_pythons(name, peers, lockstep, mpirun, tmp_path):
    config = write_config(tmp_path, MNIST)
    result = mpirun(2, lockstep, "train", config, *sets(**VARIANTS[name][1]), cwd=tmp_path, check=True)
    mine, peer = newest(tmp_path / "runs/mnist"), peers[name]
    assert mine["iter_no"] == peer["step"]
    assert_same_tensors(dict(mine["model"]), dict(peer["model"]))
    assert_same_tensors(mine["optimizer"]["state"], peer["optimizer"]["state"])
    if "correct" in peer:  # to the sample
        accuracy = float(re.search(r"accuracy (\d\.\d+)", result.stdout).group(1))
        assert round(accuracy * 10000) == peer["correct"]


def test_python_trains_on_with_our_checkpoint(lockstep, mpirun, tmp_path):
    config = write_config(tmp_path, MNIST)
    mpirun(2, lockstep, "train", config, *sets(train__max_steps=2), cwd=tmp_path, check=True)
    file = checkpoints(tmp_path / "runs/mnist")[-1]
    assert file.name == "step-00000002.pt"
    state = torch.load(file, weights_only=True)
    model = torch.nn.Sequential()
    for name, tensor in state["model"].items():
        assert not name.startswith("module.")
        model.register_parameter(name.replace(".", "_"), torch.nn.Parameter(tensor))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    optimizer.load_state_dict(state["optimizer"])
    assert optimizer.param_groups[0]["lr"] == 0.01
    sum(p.sum() for p in model.parameters()).backward()
    optimizer.step()
    assert all(torch.isfinite(p).all() for p in model.parameters())
