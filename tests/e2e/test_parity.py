"""DDP against Python's, bit for bit: the same cases under both, on the same wheel, every float compared.

tests/parity/cases.txt lists the cases; parity_peer (C++) and peer.py (Python) each run a whole world's list in
one go and write losses, parameters and buffers of every rank. Only cases that
were selected are run.
"""

import functools
import os
import pathlib
import shutil

import numpy
import pytest

from conftest import SOURCE, cache_value, run_process
from train_kit import python_ranks

pytestmark = pytest.mark.about("parallel")

PARITY = SOURCE / "tests/parity"
CASES = PARITY / "cases.txt"
WORLDS = (1, 2, 3, 4)
# One case for each feature. The others combine features, and run with --full, as do worlds 1 and 4.
QUICK = {
    2: """mlp_sgd mlp_adam mlp_adamw cnn_sgd batchnorm batchnorm_local batchnorm_first dropout tied frozen sparse sequence
          cnn_one_bucket cnn_two_buckets cnn_many_buckets cnn_cap_list cnn_batched cnn_lazy bucket_view branch
          branch_accumulate outputs skip_unused static accumulate last_batch join join_bn join_remaining join_unused join_hook
          hook_builtin hook_fp16 hook_bf16 hook_user powersgd powersgd_rank4_qr
          powersgd_batched""".split(),
    3: "mlp_sgd cnn_many_buckets branch join hook_bf16 powersgd".split(),
}
SHOWN = ("cnn_one_bucket", "cnn_two_buckets", "cnn_many_buckets")
BACKENDS = {"gloo": ["mlp_sgd", "batchnorm", "branch", "sparse", "hook_fp16"],
            "mpi": ["mlp_sgd", "batchnorm", "branch", "join", "hook_fp16"]}
PYTHONS = {"python": "gloo", "python_over_lockstep": "lockstep"}
SINCE = {"skip_unused": (2, 8), "cap_list": (2, 11), "batched_copy": (2, 12), "forward_sync": (2, 13),
         "lazy": (2, 15)}  # the libtorch that these came with


def keys_of_cases():
    lines = [line.split() for line in CASES.read_text().splitlines()]
    return {words[0]: dict(word.split("=", 1) for word in words[1:])
            for words in lines if words and not words[0].startswith("#")}


def too_new(build_dir):
    """The cases that ask for what the build's libtorch does not have."""
    version = tuple(map(int, cache_value(build_dir, "LOCKSTEP_LIBTORCH_VERSION").split(".")[:2]))
    return {name for name, case in keys_of_cases().items() if any(version < SINCE[key] for key in SINCE if key in case)}


def cases(world, backend="gloo"):
    """The names of the cases that run in that world with that backend; shared has what gloo has."""
    backend = "gloo" if backend == "shared" else backend
    return [name for name, case in keys_of_cases().items()
            if str(world) in case["worlds"].split(",") and case.get("backends", backend) == backend]


@pytest.fixture(scope="module")
def runs(request, build_dir, python, mpiexec, tmp_path_factory):
    """runs(world, kind) -> the folder with that side's results, run once and shared by the tests."""
    home = tmp_path_factory.mktemp("parity")
    asked = {2: {*SHOWN, *BACKENDS["gloo"], *BACKENDS["mpi"]}, 3: {"mlp_sgd", "branch"}}  # by world
    for item in request.session.items:
        if item.path == request.path and "name" in getattr(getattr(item, "callspec", None), "params", {}):
            asked.setdefault(item.callspec.params.get("world", 2), set()).add(item.callspec.params["name"])

    def lines_for(world, backend):
        """The case file with only the cases that were asked for and that this backend can run."""
        names = set(BACKENDS.get(backend, asked[world])) & set(cases(world, backend)) - too_new(build_dir)
        chosen = home / f"cases.{backend}.{world}"
        chosen.write_text("\n".join(line for line in CASES.read_text().splitlines() if names & set(line.split()[:1])))
        return chosen

    @functools.cache
    def folder(world, kind):
        out = home / f"{kind}.{world}"
        if kind in PYTHONS:
            python_ranks(python, world, out, PARITY / "peer.py", lines_for(world, "shared"), out, out / "store",
                         BACKEND=PYTHONS[kind], PYTHONPATH=":".join([str(build_dir / "lib/python"), os.environ.get("PYTHONPATH", "")]))
        else:
            run_process([mpiexec, "-n", world, build_dir / "bin/parity_peer", lines_for(world, kind), out, kind], check=True)
        return out
    yield folder
    shutil.rmtree(home, ignore_errors=True)


def difference(ours: pathlib.Path, theirs: pathlib.Path):
    """'' where two results hold the same bytes, else how far apart they are."""
    one, other = ours.read_bytes(), theirs.read_bytes()
    assert one, f"{ours} is empty"
    if one == other:
        return ""
    if len(one) != len(other) or len(one) % 4:
        return f"{len(one)} bytes against {len(other)}"
    a, b = numpy.frombuffer(one, "f4"), numpy.frombuffer(other, "f4")
    return f"{(a != b).sum()} of {a.size} numbers differ, by {numpy.nanmax(numpy.abs(a - b))} at most"


@pytest.mark.parametrize("world,name", [
    pytest.param(world, name, marks=() if name in QUICK.get(world, ()) else pytest.mark.full)
    for world in WORLDS for name in cases(world)])
def test_equals_python(runs, world, name, build_dir):
    if name in too_new(build_dir):
        pytest.skip("this libtorch does not have what the case asks for")
    ours, theirs = runs(world, "shared"), runs(world, "python")
    for rank in range(world):
        file = f"{name}.{rank}"
        assert difference(ours / f"{file}.bin", theirs / f"{file}.bin") == "", f"rank {rank}"
        buckets = (ours / f"{file}.txt").read_text()
        assert buckets == (theirs / f"{file}.txt").read_text(), "parameters in each bucket"


@pytest.mark.mpi
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_backend_has_the_same_bits_at_world_2(runs, backend):
    """Two numbers have one sum whatever the order."""
    files = [f"{name}.{rank}.bin" for name in BACKENDS[backend] for rank in range(2)]
    assert {file: difference(runs(2, backend) / file, runs(2, "shared") / file) for file in files} == dict.fromkeys(files, "")


@pytest.mark.parametrize("world", [2, 3])
def test_pythons_ddp_has_the_same_bits_over_lockstep(runs, world):
    gloo, ours = (runs(world, kind) for kind in PYTHONS)
    files = [file.name for file in gloo.glob("*.*.bin")]
    assert files and {file: difference(ours / file, gloo / file) for file in files} == dict.fromkeys(files, "")


def test_buckets_are_one_two_and_many(runs):
    counts = {name: len((runs(2, "shared") / f"{name}.0.txt").read_text().split())
              for name in SHOWN}
    assert counts["cnn_one_bucket"] == 1
    assert counts["cnn_two_buckets"] == 2
    assert counts["cnn_many_buckets"] > 4
