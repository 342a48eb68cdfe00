"""The GPU's step as far as a machine without one can tell: resident data, and what train.graph refuses."""

import pytest

from train_kit import MNIST, PIMA, assert_same_tensors, newest, sets, write_config, write_small_mnist

pytestmark = pytest.mark.about("cuda", "loop", "data")

pytest.importorskip("torch", reason="reads checkpoints with it")


@pytest.mark.parametrize("text,keys,ranks", [pytest.param(MNIST, dict(train__max_steps=9), 2, marks=pytest.mark.full),
                                             (PIMA, dict(train__epochs=2), 1)], ids=["images", "table"])
def test_a_resident_set_gives_the_same_bits(text, keys, ranks, lockstep, mpirun, tmp_path):
    """At the end of an epoch with a short batch, too."""
    if text is MNIST:
        keys = {"data__root": write_small_mnist(tmp_path / "mnist", train=2048 + 100), **keys}
    config = write_config(tmp_path, text)
    trained = []
    for resident in (False, True):
        name = f"resident-{resident}"
        result = mpirun(ranks, lockstep, "train", config, cwd=tmp_path, check=True,
                        *sets(**keys, run__name=name, data__resident=resident))
        assert ("resident on cpu: " in result.stderr) == resident
        trained.append(newest(tmp_path / "runs" / name))
    assert_same_tensors(trained[0]["model"], trained[1]["model"])
    assert_same_tensors(trained[0]["optimizer"], trained[1]["optimizer"])
