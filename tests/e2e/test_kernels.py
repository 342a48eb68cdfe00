"""Kernels of our own train as libtorch's do, go on from a checkpoint to the same bits, and answer in eval and predict."""

import shutil

import pytest

from train_kit import MNIST, checkpoints, metrics, sets, write_config, write_small_mnist

pytestmark = pytest.mark.about("kernels", "fast")

pytest.importorskip("torch")

FAST = sets(train__kernels="fast", train__layout="channels_last")


def losses(run):
    return {line["step"]: line["loss"] for line in metrics(run) if line.get("event") == "step"}


@pytest.mark.mpi
def test_twenty_steps_as_libtorchs(lockstep, mpirun, tmp_path):
    config = write_config(tmp_path, MNIST)
    steps = sets(train__max_steps=20, train__log_every=10, data__batch_size=32)
    for name, kernels, layout in (("exact", "exact", "channels_last"), ("fast", "fast", "channels_last"), ("nchw", "exact", "nchw")):
        mpirun(2, lockstep, "train", config, *FAST, *steps, *sets(run__name=name, train__kernels=kernels, train__layout=layout),
               cwd=tmp_path, check=True)
    exact, fast, nchw = (losses(tmp_path / "runs" / name) for name in ("exact", "fast", "nchw"))
    assert list(fast) == [10, 20]
    # With AVX-512 libtorch's own two layouts are up to 1e-5 apart in these steps, and with the taps of a convolution added in
    # another order far more. With AVX2 its layouts themselves add in another order.
    for step, loss in fast.items():
        assert loss == pytest.approx(exact[step], rel=0, abs=max(2e-5, 2 * abs(nchw[step] - exact[step]))), step
    final = [checkpoints(tmp_path / "runs" / name)[-1].read_bytes() for name in ("exact", "fast")]
    assert final[0] != final[1], "both are exact"


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.full)])
def test_eval_and_predict_take_them(precision, lockstep, run, tmp_path):
    config = write_config(tmp_path, MNIST)
    mnist = write_small_mnist(tmp_path / "mnist")  # bf16 of a processor without it takes minutes for all of MNIST
    words = [*FAST, *sets(train__precision=precision, data__root=mnist), "--launcher", "none"]
    result = run(lockstep, "train", config, *words, *sets(train__max_steps=20), cwd=tmp_path, check=True)
    assert "train.kernels: fast" in result.stderr
    saved = ["--checkpoint", tmp_path / "runs/mnist"]
    answers = [run(lockstep, "predict", config, *words, *sets(train__kernels=kernels), *saved, "--input",
                   mnist / "MNIST/raw/t10k-images-idx3-ubyte", cwd=tmp_path, check=True).stdout.splitlines()
               for kernels in ("exact", "fast")]
    assert len(answers[0]) == len(answers[1]) == 1000
    same = sum(one.split(",")[:2] == other.split(",")[:2] for one, other in zip(*answers))
    assert same >= (1000 if precision == "fp32" else 995), "other digits"
    assert answers[0] != answers[1], "both are exact"


def test_where_they_are_not_installed_a_line_says_how_to_get_them(lockstep, run, tmp_path):
    for file in (lockstep, *(lockstep.parents[1] / "lib").glob("liblockstep.so.*")):
        shutil.copy(file, tmp_path)
    result = run(tmp_path / "lockstep", "train", write_config(tmp_path, MNIST), *FAST, "--launcher", "none", cwd=tmp_path,
                 env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert result.returncode == 2 and "the fast kernels are not installed" in result.stderr, result.output
    assert "--target lockstep_fast" in result.stderr and not (tmp_path / "runs").exists(), result.output
