"""model.checkpointing: activations are computed again in backward, to the same bits, wherever it is set."""

import pytest

from test_folder import CONFIG, lacks, write_images  # noqa: F401
from train_kit import assert_same_run, sets

pytestmark = pytest.mark.about("recompute", "models", "modes")

BLOCKS = dict(model__name="resnet18", task__size=[32, 32], data__batch_size=3, train__max_steps=3)


@pytest.fixture
def train(lockstep, mpiexec, lacks, tmp_path):  # noqa: F811
    """train("name", world, key=value, ...): its run's folder."""
    from conftest import run_process
    images = write_images(tmp_path / "images")

    def run(name, world, words=(), **values):
        config = tmp_path / f"{name}.yaml"
        config.write_text(CONFIG.format(name=name, root=images))
        run_process([*([mpiexec, "-n", world] if world > 1 else []), lockstep, "train", config, *sets(**{**BLOCKS, **values}), *words],
                    cwd=tmp_path, check=True, env={"OMP_NUM_THREADS": "1"})
        return tmp_path / "runs" / name
    return run


# Of the model's own arithmetic, and of what stands around it. BatchNorm's statistics are in the checkpoints.
@pytest.mark.full
@pytest.mark.parametrize("world, more", [
    (2, dict(train__accumulate=2, ddp__find_unused_parameters=True)),
    (2, dict(ddp__sync_batchnorm=True, ddp__static_graph=True, train__precision="bf16")),
    (2, dict(parallel__pipeline=2, parallel__micro_batches=2, data__batch_size=4)),
], ids=["accumulate", "sync_batchnorm", "pipeline"])
def test_a_run_with_it_has_the_bits_of_one_without(world, more, train):
    assert_same_run(train("plain", world, **more), train("again", world, model__checkpointing=True, **more))


def test_a_run_goes_on_with_it_and_without_it(train):
    whole = train("whole", 1)
    train("parted", 1, model__checkpointing=True, train__max_steps=2)
    assert_same_run(whole, train("parted", 1, words=["--resume", "auto"]))
