"""DDP against Python's, bit for bit: the same cases under both, on the same wheel, every float compared.

tests/parity/cases.txt lists the cases; parity_peer (C++) and peer.py (Python) each run a whole world's list in
one go and write losses, parameters and buffers of every rank. At world 4 Python is started by torchrun. Only cases that
were selected are run.
"""

import functools
import pathlib
import shutil

import numpy
import pytest

from conftest import SOURCE, cache_value, end_session, free_port, run_process, start_process
from process_kit import PATIENCE

pytestmark = pytest.mark.about("parallel")

PARITY = SOURCE / "tests/parity"
CASES = PARITY / "cases.txt"
WORLDS = (1, 2, 3, 4)
# One case for each feature. The others combine features, and run with --full, as do worlds 1 and 4.
QUICK = {
    2: """mlp_sgd mlp_adam mlp_adamw cnn_sgd batchnorm batchnorm_local batchnorm_first dropout tied frozen sparse sequence
          cnn_one_bucket cnn_two_buckets cnn_many_buckets cnn_cap_list cnn_batched cnn_lazy bucket_view branch
          branch_accumulate outputs skip_unused static accumulate last_batch join join_bn join_remaining
          hook_builtin hook_fp16 hook_bf16 hook_user powersgd powersgd_rank4_qr
          powersgd_batched""".split(),
    3: "mlp_sgd cnn_many_buckets branch join hook_bf16 powersgd".split(),
}
SHOWN = ("cnn_one_bucket", "cnn_two_buckets", "cnn_many_buckets", "mlp_adam", "mlp_adamw")  # by the tests below the cases
BACKENDS = {"gloo": ["mlp_sgd", "batchnorm", "branch", "sparse", "hook_fp16"],
            "mpi": ["mlp_sgd", "batchnorm", "branch", "join", "hook_fp16"]}
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


def run_python(python, world, out, case_file):
    """One Python process a rank, meeting in a file."""
    out.mkdir(parents=True)
    logs = [(out / f"log.{rank}").open("w+") for rank in range(world)]
    ranks = [start_process([python, PARITY / "peer.py", case_file, out, out / "store"],
                           env={"RANK": rank, "WORLD_SIZE": world}, stdout=log, stderr=log)
             for rank, log in enumerate(logs)]
    try:
        failed = [rank for rank, process in enumerate(ranks) if process.wait(timeout=PATIENCE) != 0]
    finally:
        for process in ranks:
            end_session(process)
    assert not failed, f"Python's ranks {failed} failed:\n" + (out / f"log.{failed[0]}").read_text()[-4000:]


def run_torchrun(python, world, out, case_file):
    run_process([python, "-m", "torch.distributed.run", "--nproc-per-node", world, "--master-addr", "127.0.0.1",
                 "--master-port", free_port(), PARITY / "peer.py", case_file, out],
                env={"GLOO_SOCKET_IFNAME": "lo"}, check=True)


def run_cpp(build_dir, mpiexec, world, out, backend, case_file):
    peer = build_dir / "bin/parity_peer"
    if not peer.exists():
        pytest.fail(f"{peer} is not built")
    run_process([mpiexec, "-n", world, peer, case_file, out, backend], check=True)


@pytest.fixture(scope="module")
def runs(request, build_dir, python, mpiexec, tmp_path_factory):
    """runs(world, kind) -> the folder with that side's results, run once and shared by the tests."""
    home = tmp_path_factory.mktemp("parity")
    asked = {2: set(SHOWN)}  # by world
    for item in request.session.items:
        if item.path == request.path and hasattr(item, "callspec"):
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
        if kind == "python":
            (run_torchrun if world == 4 else run_python)(python, world, out, case_file=lines_for(world, "shared"))
        else:
            run_cpp(build_dir, mpiexec, world, out, backend=kind, case_file=lines_for(world, kind))
        return out
    yield folder
    shutil.rmtree(home, ignore_errors=True)


def difference(ours: pathlib.Path, theirs: pathlib.Path):
    """'' where two results hold the same bytes, else how far apart they are."""
    one, other = ours.read_bytes(), theirs.read_bytes()
    assert one, f"{ours} is empty"
    if one == other:
        return ""
    if len(one) != len(other):
        return f"{len(one)} bytes against {len(other)}"
    if len(one) % 4:
        return "bytes differ"
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
@pytest.mark.parametrize("backend, name", [(backend, name) for backend, names in BACKENDS.items() for name in names])
def test_each_backend_has_the_same_bits_at_world_2(runs, backend, name, build_dir):
    """Two numbers have one sum whatever the order."""
    if name in too_new(build_dir):
        pytest.skip("this libtorch does not have what the case asks for")
    for rank in range(2):
        assert difference(runs(2, backend) / f"{name}.{rank}.bin", runs(2, "shared") / f"{name}.{rank}.bin") == ""


def test_buckets_are_one_two_and_many(runs):
    counts = {name: len((runs(2, "shared") / f"{name}.0.txt").read_text().split())
              for name in SHOWN[:3]}
    assert counts["cnn_one_bucket"] == 1
    assert counts["cnn_two_buckets"] == 2
    assert counts["cnn_many_buckets"] > 4


def test_comparison_can_fail(runs, tmp_path):
    """Another case's results differ, and one flipped bit shows."""
    ours = runs(2, "shared") / "mlp_adam.0.bin"
    assert "numbers differ" in difference(ours, runs(2, "shared") / "mlp_adamw.0.bin")
    flipped = bytearray(ours.read_bytes())
    flipped[-4] ^= 1
    (tmp_path / "flipped.bin").write_bytes(flipped)
    assert "1 of" in difference(ours, tmp_path / "flipped.bin")
