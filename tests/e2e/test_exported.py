"""Models that Python exported, trained in C++ beside Python's own training of them: every tensor, every bit.

tests/models/exported: zoo.py has the models; export.py writes their files and trains the modules themselves, and
exported_peer (C++) trains the files; ddp.py and the same peer do so in several ranks. Each process takes many models.
"""

import functools
import shutil
import sys
import types

import pytest

from conftest import SOURCE, cache_value, run_process

pytest.importorskip("torch", reason="needs Python's torch to export models")
load_file = pytest.importorskip("safetensors.numpy").load_file

PEERS = SOURCE / "tests/models/exported"
sys.path.append(str(PEERS))
from zoo import LOSES, REFUSED, ZOO  # noqa: E402

pytestmark = pytest.mark.about("exported", "models")

TRAINED = {**ZOO, **LOSES}
QUICK = ("cnn_bn_dropout", "lstm", "multi_io", "own_noise")
EXPORTED = {"quick": (*QUICK, "custom_op")}
EXPORTED["full"] = tuple(name for name in (*TRAINED, *REFUSED) if name not in EXPORTED["quick"])
WAYS = (("sgd", "flip"), ("adam", "flip"), ("sgd", "twin"))  # an optimizer, and where eval() has its graph from

# each in one world alone
IN_RANKS = (("cnn_bn_dropout", 2), ("tied", 2), ("multi_io", 2), ("frozen", 2), ("buffers", 2), ("lstm", 2), ("siamese", 2),
            ("transformer_encoder", 3), ("resnet18", 3), ("bert", 3))

SLOW = 1800  # seconds for a process that takes all models


def tier_of(name):
    return "quick" if name in EXPORTED["quick"] else "full"


def marked(name):
    return pytest.param(name, marks=() if name in QUICK else pytest.mark.full)


def outcomes(result, names):
    """{name: "ok", "skip: ..." or "error: ..."}: a process that many models share says a line for each."""
    lines = dict(line.split(" ", 1) for line in result.stdout.splitlines() if " " in line)
    return {name: lines.get(name, f"error: no word of it, exit {result.returncode}\n{result.stderr[-2000:]}") for name in names}


@pytest.fixture(scope="module")
def runs(build_dir, python, mpiexec, tmp_path_factory):
    """.home has the files; .exported(tier), .trained(tier, optimizer, mode), .in_ranks(ranks): how each model ended."""
    version = cache_value(build_dir, "LOCKSTEP_LIBTORCH_VERSION")
    if tuple(map(int, version.split(".")[:2])) < (2, 9):
        pytest.skip(f"torch {version} exports files of another layout")
    home, peer = tmp_path_factory.mktemp("exported"), build_dir / "bin/exported_peer"
    if not peer.exists():
        pytest.fail(f"{peer} is not built")

    def run(names, *args, **how):
        return outcomes(run_process(args, timeout=SLOW, **how), names)

    @functools.cache
    def exported(tier):
        names = EXPORTED[tier]
        return run(names, python, PEERS / "export.py", home, *names)

    def whole(names):
        return [name for name in names if exported(tier_of(name))[name].startswith("ok")]

    @functools.cache
    def trained(tier, optimizer, mode):
        names = whole(EXPORTED[tier])
        return run(names, peer, "train", home, optimizer, mode, *names)

    def names_in(ranks):
        return whole(name for name, count in IN_RANKS if count == ranks)

    @functools.cache
    def python_in_ranks():
        jobs = [f"{ranks}={','.join(names)}" for ranks in (2, 3) if (names := names_in(ranks))]
        return run_process([python, PEERS / "ddp.py", home, *jobs], env={"GLOO_SOCKET_IFNAME": "lo"}, timeout=SLOW)

    @functools.cache
    def in_ranks(ranks):
        names, theirs = names_in(ranks), python_in_ranks()
        if theirs.returncode:
            return {name: f"error: Python's ranks: {theirs.stderr[-4000:]}" for name in names}
        return run(names, mpiexec, "-n", ranks, peer, "ddp", home, *names)

    yield types.SimpleNamespace(home=home, exported=exported, trained=trained, in_ranks=in_ranks)
    shutil.rmtree(home, ignore_errors=True)


def require(outcome):
    if outcome.startswith("skip"):
        pytest.skip(outcome)
    assert outcome.startswith("ok"), outcome


def same(ours, theirs):
    return (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())


def difference(ours, theirs):
    """'' where the two trainings left the same, else which tensors differ."""
    if ours.keys() != theirs.keys():
        return f"ours alone: {sorted(ours.keys() - theirs.keys())}, Python's alone: {sorted(theirs.keys() - ours.keys())}"
    assert theirs
    found = [name for name in theirs if not same(ours[name], theirs[name])]
    return f"{len(found)} of {len(theirs)} tensors differ: {found}" if found else ""


def python_left(runs, name, optimizer):
    """What Python's training of a model has left."""
    all = load_file(runs.home / f"{name}.want.safetensors")
    return {key.removeprefix(f"{optimizer}."): tensor for key, tensor in all.items() if key.startswith(f"{optimizer}.")}


def only(tensors, evaluated):
    return {name: tensor for name, tensor in tensors.items() if name.startswith("eval.") == evaluated}


@pytest.mark.parametrize("name", [marked(name) for name in TRAINED])
def test_trains_as_python_does(runs, name):
    require(runs.exported(tier_of(name))[name])
    model, found = TRAINED[name], {}
    for optimizer, mode in WAYS:
        evaluates = not model.module and not (model.twin and mode == "flip")
        outcome = runs.trained(tier_of(name), optimizer, mode)[name]
        require(outcome)
        assert outcome == "ok" or not evaluates, outcome
        ours, theirs = load_file(runs.home / f"{name}.{optimizer}.{mode}.got.safetensors"), python_left(runs, name, optimizer)
        if not evaluates:
            ours, theirs = only(ours, evaluated=False), only(theirs, evaluated=False)
        found[f"{optimizer}, {mode}"] = difference(ours, theirs)
    assert not any(found.values()), found


@pytest.mark.parametrize("name", [marked(name) for name, model in TRAINED.items() if model.twin])
def test_flags_alone_do_not_evaluate(runs, name):
    """What the table says of a model that needs its second export: lockstep refuses, or other numbers come out."""
    require(runs.exported(tier_of(name))[name])
    outcome = runs.trained(tier_of(name), "sgd", "flip")[name]
    require(outcome)
    if TRAINED[name].draws:
        assert "evaluation error" in outcome and "draws random numbers" in outcome
    else:
        ours = only(load_file(runs.home / f"{name}.sgd.flip.got.safetensors"), evaluated=True)
        assert difference(ours, only(python_left(runs, name, "sgd"), evaluated=True))


@pytest.mark.full  # by default test_exported_train.py has ranks
@pytest.mark.parametrize("name, ranks", IN_RANKS)
def test_ranks_train_as_pythons_ddp_does(runs, name, ranks):
    require(runs.exported(tier_of(name))[name])
    require(runs.in_ranks(ranks)[name])
    ours, theirs = (load_file(runs.home / f"{name}.ddp{ranks}.{side}.safetensors") for side in ("got", "want"))
    assert difference(ours, theirs) == ""


def test_an_operator_of_ones_own_is_refused(runs):
    require(runs.exported("quick")["custom_op"])
    refused = runs.trained("quick", "sgd", "flip")["custom_op"]
    assert refused.startswith("error: ") and "zoo.twice" in refused
