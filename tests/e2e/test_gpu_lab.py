"""The GPU path on pretended GPUs (tests/gpulab): that they notice what is wrong, what a rank sees of them, and every fault of one."""

import re

import pytest
from conftest import SOURCE
from gpu_lab_kit import gpu_lab  # noqa: F401
from train_kit import DATA, MNIST, newest, sets, assert_same_tensors, write_config, losses

torch = pytest.importorskip("torch", reason="reads checkpoints with it")

pytestmark = pytest.mark.about("cuda", "comm", "launch")

SHORT = dict(train__max_steps=12, train__log_every=1, data__batch_size=64, data__workers=0, train__tf32="none", run__name="run",
             launch__device="cuda")


@pytest.fixture
def train(lockstep, tmp_path):
    """train(lab, world, env={}, words=(), SETTINGS) -> the run's folder, or with check=False (exit statuses, texts)."""
    def start(lab, world=1, config=MNIST, env=None, words=(), check=True, **settings):
        told = SHORT | settings
        path = config if isinstance(config, type(tmp_path)) else write_config(tmp_path, config)
        statuses, texts = lab.run(world, lockstep, "train", path, *words, *sets(**told), env=env, check=check)
        return tmp_path / "runs" / told["run__name"] if check else (statuses, texts)
    return start


# ---- the laboratory notices --------------------------------------------------------------------------------

@pytest.mark.full
def test_a_wait_that_is_missing_shows_in_the_numbers(gpu_lab, train):  # noqa: F811
    lab = gpu_lab(gpus=2)
    right = losses(train(lab, 2, run__name="right"))
    statuses, _ = train(lab, 2, env=lab.env(break_wait=1, delay_ms=2), run__name="wrong", launch__timeout="5s", check=False)
    wrong = lab.folder / "runs/wrong"
    assert any(statuses) or not wrong.exists() or losses(wrong) != right


# ---- the tests that need a GPU -------------------------------------------------------------------------------

@pytest.mark.parametrize("binary, names, world", [
    ("test_comm", "CudaPlugin.*", 1), ("test_parallel_ranks", "DdpOnGpus.*", 2),
    *(pytest.param(*row, marks=pytest.mark.full) for row in (
        ("test_parallel", "DataParallelOnGpus.*", 1), ("test_parallel_ranks", "SyncNormOnAGpu.*", 2), ("test_parallel_ranks", "StageLineOnGpus.*", 2)))])
def test_gtests_that_need_a_gpu_pass_on_pretended_ones(binary, names, world, gpu_lab, build_dir):  # noqa: F811
    lab = gpu_lab(gpus=4)
    _, texts = lab.run(world, build_dir / "bin" / binary, f"--gtest_filter={names}", env={"LOCKSTEP_TEST_GPU": 1})
    assert re.search(r"\[  PASSED  \] [1-9]\d* test", texts[0]) and "SKIPPED" not in texts[0], texts[0]



# ---- faults ----------------------------------------------------------------------------------------------------

ENDLESS = dict(train__max_steps=100_000, train__epochs=1000, launch__timeout="4s", checkpoint__every_epochs=0)


def error_of(text):
    return "\n".join(line for line in text.splitlines() if "error" in line)


def test_out_of_memory_says_what_would_help(gpu_lab, train):  # noqa: F811
    lab = gpu_lab()
    statuses, texts = train(lab, env=lab.env(gpu_mb=40), check=False, data__batch_size=2048)
    assert statuses == [1], texts[0][-1500:]
    assert "out of memory" in texts[0] and "data.batch_size" in texts[0], texts[0][-1500:]


@pytest.mark.full
def test_a_device_that_fails_for_good_ends_both_ranks_by_name(gpu_lab, train):  # noqa: F811
    lab = gpu_lab(gpus=2)
    statuses, texts = train(lab, 2, env=lab.env(fail_after_ops=400, fail_rank=1), check=False, **ENDLESS)
    assert all(status == 1 for status in statuses), statuses
    assert "unspecified launch failure" in texts[1] and "rank 1" in error_of(texts[0]), error_of(texts[0]) + error_of(texts[1])


@pytest.mark.parametrize("fault, graph", [("error:30", False), *(pytest.param(*row, marks=pytest.mark.full) for row in (
    ("hang:30", True), ("async:30", False), ("kill:30", True)))])
def test_a_rank_whose_nccl_fails_is_named_by_the_other(fault, graph, gpu_lab, train):  # noqa: F811
    """Where both hosts have launched what hangs nobody may be seen at fault, but both end."""
    lab = gpu_lab(gpus=2)
    how = dict(config=SOURCE / "configs/mnist_gpu.yaml", data__root=f"{DATA}/mnist", train__precision="fp32") if graph else {}
    statuses, texts = train(lab, 2, env=lab.env(nccl_fault=fault, fail_rank=1), check=False, **(ENDLESS | how))
    assert all(statuses), statuses
    named = "rank 1" in error_of(texts[0])
    assert named or (fault.startswith("hang") and "timed out after 4 s" in error_of(texts[0])), texts[0][-1500:]


@pytest.mark.full
def test_an_abort_that_never_returns_does_not_keep_the_ranks(gpu_lab, train):  # noqa: F811
    lab = gpu_lab(gpus=2)
    statuses, texts = train(lab, 2, env=lab.env(nccl_fault="hang:30", fail_rank=1, nccl_abort="hang"), check=False, **ENDLESS)
    assert all(statuses) and "timed out after 4 s" in error_of(texts[0]), texts[0][-1500:]


# ---- between devices and CPUs ------------------------------------------------------------------------------------

@pytest.mark.full
def test_a_run_goes_from_gpus_to_cpus_and_back(gpu_lab, train):  # noqa: F811
    lab = gpu_lab(gpus=2)
    whole = newest(train(lab, 2, run__name="whole"))
    for steps, device in ((4, "cuda"), (8, "cpu"), (12, "cuda")):
        parts = train(lab, 2, run__name="parts", words=["--resume", "auto"] if steps > 4 else [], train__max_steps=steps, launch__device=device)
    assert_same_tensors(newest(parts)["model"], whole["model"])


@pytest.mark.full
def test_evaluation_and_prediction_on_a_gpu_are_the_cpus(gpu_lab, train, lockstep):  # noqa: F811
    lab = gpu_lab()
    folder = train(lab)
    picture = DATA / "mnist" / "t10k-images-idx3-ubyte.gz"
    for words in (["eval", folder], ["predict", folder, "--input", picture]):
        gpu, cpu = (lab.run(1, lockstep, *words, *sets(launch__device=device))[1][0].splitlines()[-20:] for device in ("cuda", "cpu"))
        assert [line for line in gpu if "cuda" not in line] == [line for line in cpu if "cpu" not in line]


@pytest.mark.full
def test_every_gpus_generator_comes_back(gpu_lab, train):  # noqa: F811
    """Of a rank's second GPU, too. The four are made to differ in the file, and nothing draws."""
    lab = gpu_lab(gpus=4)
    how = dict(config=SOURCE / "configs/mnist_two_stage.yaml", model__devices="[0,1]", data__root=DATA / "mnist")
    folder = train(lab, 2, train__max_steps=2, **how)
    file = sorted((folder / "checkpoints").glob("step-*.pt"))[-1]
    saved = torch.load(file, weights_only=True)
    state, = saved["lockstep"]["device_rng"]  # one, while all ranks' are alike
    states = [state.clone() for _ in range(4)]
    for number, one in enumerate(states):
        one[0] = 10 + number
    saved["lockstep"] |= {"device_rng": states[:2], "further_device_rng": [states[2:]]}
    torch.save(saved, file)
    again = newest(train(lab, 2, train__max_steps=4, words=["--resume", file], **how))["lockstep"]
    assert all(map(torch.equal, again["device_rng"] + again["further_device_rng"][0], states))


# ---- ranks that share a GPU --------------------------------------------------------------------------------------

@pytest.mark.full
def test_ranks_share_a_gpu_where_sums_go_through_the_cpu(gpu_lab, train):  # noqa: F811
    """Two ranks on one GPU, over gloo's order: the CPUs' losses; NCCL refuses that, and auto is NCCL."""
    lab = gpu_lab(gpus=1)
    cpus = losses(train(lab, 2, run__name="cpus", launch__device="cpu"))
    for backend in ("shared", "gloo"):
        assert losses(train(lab, 2, run__name=backend, launch__backend=backend)) == pytest.approx(cpus, rel=1e-5)
    statuses, texts = train(lab, 2, run__name="auto", check=False)
    assert statuses == [2, 2] and "share one GPU" in "".join(texts)


@pytest.mark.full
def test_as_world_has_the_same_bits_on_any_number_of_gpus(gpu_lab, train):  # noqa: F811
    ended = []
    for gpus, processes in ((1, 1), (2, 2), (3, 3), (2, 1)):
        folder = train(gpu_lab(gpus=gpus), processes, run__name=f"run{gpus}{processes}", launch__device="auto", train__as_world=3,
                       train__max_steps=4)
        assert "device: cuda" in (folder / "config.yaml").read_text()
        ended.append(newest(folder))
    for other in ended[1:]:
        for key in ("model", "optimizer"):
            assert_same_tensors(ended[0][key], other[key])
