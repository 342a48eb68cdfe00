"""Checkpoints between lockstep and Python, and `lockstep inspect` on good, damaged and hostile files."""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import pickle
import zipfile

import pytest

pytestmark = pytest.mark.about("checkpoint")

torch = pytest.importorskip("torch", reason="needs Python's torch to compare with")


@pytest.fixture
def echo(build_dir, run, tmp_path):
    """echo(object or path) -> the path of what C++ read and wrote back."""
    def through(content):
        source = content
        if not isinstance(content, pathlib.Path):
            source = tmp_path / "python.pt"
            torch.save(content, source)
        target = tmp_path / "cpp.pt"
        run(build_dir / "bin/test_checkpoint", "--gtest_filter=Peer.*", check=True,
            env={"LOCKSTEP_PEER_IN": str(source), "LOCKSTEP_PEER_OUT": str(target)})
        return target
    return through


@pytest.fixture
def inspect(lockstep, run):
    """inspect(path) -> {name: entry} of `lockstep inspect --json`."""
    def entries(path):
        result = run(lockstep, "inspect", path, "--json", check=True)
        return {entry["name"]: entry for entry in json.loads(result.stdout)["entries"]}
    return entries


@pytest.fixture
def refusal(lockstep, run):
    """refusal(path) -> what `lockstep inspect` says of a file it must refuse."""
    def text(path):
        result = run(lockstep, "inspect", path)
        assert result.returncode == 2, result.output
        assert result.stdout == ""
        return result.stderr
    return text


def digest(tensor):
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0, dtype=torch.uint8)
    return hashlib.sha256(data.numpy().tobytes()).hexdigest()[:16]


def many_tensors():
    base = torch.arange(24, dtype=torch.float32)
    tensors = {str(dtype): torch.arange(6).to(dtype).reshape(2, 3) for dtype in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
        torch.int8, torch.uint8, torch.bool)}
    tensors |= {
        "scalar": torch.tensor(3.5), "empty": torch.empty(0, 4), "transposed": base.view(4, 6).t(),
        "slice": base[5:12], "strided": base[::3], "channels_last": torch.randn(2, 3, 4, 5).contiguous(
            memory_format=torch.channels_last), "nan": torch.tensor([float("nan"), float("inf"), -0.0]),
    }
    return tensors


def same(a, b):
    """Equal bits, shape and dtype."""
    return a.dtype == b.dtype and a.shape == b.shape and digest(a) == digest(b)


def assert_all_inspected(tensors, entries, prefix=""):
    for name, tensor in tensors.items():
        entry = entries[prefix + name]
        assert entry["digest"] == digest(tensor), name
        assert entry["shape"] == list(tensor.shape), name
        assert "torch." + entry["dtype"] == str(tensor.dtype), name


def test_python_reads_what_lockstep_writes(echo):
    tensors = many_tensors()
    tied = torch.randn(50, 50)
    values = {"int": -(1 << 40), "real": 0.1, "yes": True, "none": None, "text": "Grüße", "list": [1, 2.5, "x"],
              7: {"nested": (0.9, 0.999)}, "inf": float("inf"), "empty": {}}
    path = echo({"tensors": tensors, "values": values, "tied": {"a": tied, "b": tied, "view": tied.view(-1)}})
    for mmap in (True, False):
        back = torch.load(path, weights_only=True, mmap=mmap)
        assert list(back["tensors"]) == list(tensors)
        assert all(same(back["tensors"][name], tensor) for name, tensor in tensors.items())
    assert back["values"] == values
    assert type(back["values"]["yes"]) is bool and type(back["values"][7]["nested"]) is tuple
    assert back["tied"]["a"].data_ptr() == back["tied"]["view"].data_ptr()
    assert path.stat().st_size < 2 * tied.nbytes + 20_000
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None and archive.comment.startswith(b"lockstep crc32 ")


def test_random_state_is_interchangeable(echo):
    torch.manual_seed(11)
    torch.randn(7)
    state = torch.get_rng_state()
    back = torch.load(echo({"rng": state}), weights_only=True)
    expected = torch.rand(100)
    assert torch.equal(back["drawn"], expected)
    assert torch.equal(back["rng_after"], torch.get_rng_state())


def test_safetensors_both_ways(echo, inspect, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = {name: tensor.contiguous() for name, tensor in many_tensors().items()}
    written = tmp_path / "python.safetensors"
    safetensors.save_file(tensors, written, metadata={"who": "python"})
    assert_all_inspected(tensors, inspect(written))
    back = torch.load(echo(written), weights_only=True)
    assert all(same(back[name], tensor) for name, tensor in tensors.items())
    read = safetensors.load_file(str(echo({"tensors": tensors})) + ".safetensors")
    assert set(read) == set(tensors)
    assert all(same(read[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("how", [{}, {"pickle_protocol": 5}, {"_use_new_zipfile_serialization": False}], ids=str)
def test_reads_what_python_saves(inspect, tmp_path, how):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
               "params": list(model.parameters()), "tensors": many_tensors(), "big": 1 << 62, "negative": -129,
               "size": torch.Size([2, 3]), "device": torch.device("cpu"), "dtype": torch.float32,
               "default": collections.defaultdict(list, {"a": [1]}), "set": {3}, "bytes": b"\0\1"}
    path = tmp_path / "python.pt"
    torch.save(content, path, **how)
    entries = inspect(path)
    assert_all_inspected(model.state_dict(), entries, "model.")
    assert_all_inspected(content["tensors"], entries, "tensors.")
    assert_all_inspected(dict(enumerate(model.parameters())) and
                         {str(i): p for i, p in enumerate(model.parameters())}, entries, "params.")
    assert_all_inspected(optimizer.state_dict()["state"][0], entries, "optimizer.state.0.")
    assert entries["big"]["value"] == str(1 << 62) and entries["negative"]["value"] == "-129"
    assert entries["optimizer.param_groups.0.lr"]["value"] == "0.001"
    assert entries["dtype"]["value"] == "torch.float32" and entries["device"]["value"] == "cpu"
    assert [entries["size.0"]["value"], entries["size.1"]["value"]] == ["2", "3"]
    assert entries["default.a.0"]["value"] == "1" and entries["set.0"]["value"] == "3"


def test_reads_checkpoints_that_python_would_not_load_with_weights_only(inspect, tmp_path):
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "python.pt"
    torch.save({"args": argparse.Namespace(lr=0.5, name="x"), "accuracy": numpy.float64(98.5), "n": numpy.int64(3),
                "w": torch.ones(2)}, path)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=True)
    entries = inspect(path)
    assert entries["args.lr"]["value"] == "0.5" and entries["args.name"]["value"] == "x"
    assert entries["accuracy"]["value"] == "98.5" and entries["n"]["value"] == "3"
    assert entries["w"]["digest"] == digest(torch.ones(2))


def test_cuda_locations_are_ignored(inspect, tmp_path):
    """A file saved on a GPU, made here by renaming the location in the pickle."""
    path, gpu = tmp_path / "cpu.pt", tmp_path / "gpu.pt"
    torch.save({"w": torch.ones(3)}, path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(gpu, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"X\3\0\0\0cpu", b"X\6\0\0\0cuda:0"))
    assert b"cuda:0" in gpu.read_bytes()
    assert inspect(gpu)["w"]["digest"] == digest(torch.ones(3))


class Harmful:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("how", [{}, {"_use_new_zipfile_serialization": False}], ids=str)
def test_a_malicious_pickle_is_refused_by_name(refusal, tmp_path, how):
    path, proof = tmp_path / "evil.pt", tmp_path / "executed"
    torch.save({"model": {"w": torch.ones(2)}, "extra": Harmful(proof)}, path, **how)
    text = refusal(path)
    assert f"{os.system.__module__}.system" in text
    assert not proof.exists()


def test_a_file_without_a_checksum_is_not_called_whole(echo, lockstep, run, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch", reason="needs Python's safetensors")
    tensors = {"w": torch.arange(100.0)}
    torch.save(tensors, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    torch.save(tensors, tmp_path / "new.pt")
    safetensors.save_file(tensors, tmp_path / "foreign.safetensors")
    ours = echo({"tensors": tensors})
    sealed = ours.with_name(ours.name + ".safetensors")
    assert torch.equal(safetensors.load_file(sealed)["w"], tensors["w"])

    last_line = run(lockstep, "inspect", tmp_path / "old.pt", check=True).stdout.splitlines()[-1]
    assert "no checksum" in last_line and "whole" not in last_line
    for path, checksum in ((tmp_path / "foreign.safetensors", "none"), (tmp_path / "new.pt", "records"), (ours, "file"),
                           (sealed, "file")):
        assert json.loads(run(lockstep, "inspect", path, "--json", check=True).stdout)["checksum"] == checksum, path
    flipped = bytearray(sealed.read_bytes())
    flipped[-7] ^= 1
    (tmp_path / "flipped.safetensors").write_bytes(flipped)
    result = run(lockstep, "inspect", tmp_path / "flipped.safetensors")
    assert result.returncode == 2 and "checksum" in result.stderr
