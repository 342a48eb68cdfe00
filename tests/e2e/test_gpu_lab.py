"""The GPU path on pretended GPUs (tests/gpulab): that they notice what is wrong, what a rank sees of them, and every fault of one."""

import re
import shutil
import sys

import pytest
from conftest import SOURCE
from examples_kit import build_against
from gpu_lab_kit import gpu_lab  # noqa: F401
from train_kit import DATA, MNIST, metrics, newest, sets, assert_same_tensors, write_config

torch = pytest.importorskip("torch", reason="reads checkpoints with it")

pytestmark = pytest.mark.about("cuda", "comm", "launch")

SHORT = dict(train__max_steps=12, train__log_every=1, data__batch_size=64, data__workers=0, train__tf32="none", run__name="run",
             launch__device="cuda")


@pytest.fixture
def train(lockstep, tmp_path):
    """train(lab, world, env={}, words=(), SETTINGS) -> the run's folder, or with check=False (exit statuses, texts)."""
    def start(lab, world=1, config=MNIST, env=None, each=None, words=(), check=True, **settings):
        told = SHORT | settings
        path = config if isinstance(config, type(tmp_path)) else write_config(tmp_path, config)
        statuses, texts = lab.run(world, lockstep, "train", path, *words, *sets(**told), env=env, each=each, check=check)
        return tmp_path / "runs" / told["run__name"] if check else (statuses, texts)
    return start


def losses(folder):
    return [line["loss"] for line in metrics(folder) if line["event"] == "step"]


# ---- the laboratory notices --------------------------------------------------------------------------------

def test_a_wait_that_is_missing_shows_in_the_numbers(gpu_lab, train):  # noqa: F811
    lab = gpu_lab(gpus=2)
    right = losses(train(lab, 2, run__name="right"))
    statuses, _ = train(lab, 2, env=lab.env(break_wait=1, delay_ms=2), run__name="wrong", launch__timeout="5s", check=False)
    wrong = lab.folder / "runs/wrong"
    assert any(statuses) or not wrong.exists() or losses(wrong) != right


READS = """
import ctypes, torch
x = torch.ones(1000, device="cuda")
torch.cuda.synchronize()
print("value", ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))[0], flush=True)
"""


def test_the_hosts_read_of_a_gpus_memory_is_a_fault(gpu_lab, python):  # noqa: F811
    lab = gpu_lab()
    statuses, texts = lab.run(1, python, "-c", READS, env=lab.env(guard=1), check=False)
    assert statuses == [-11] and "value" not in texts[0]
    assert lab.run(1, python, "-c", READS)[1][0].strip().endswith("value 1.0")


def test_order_between_streams_is_as_on_gpus(gpu_lab, python):  # noqa: F811
    """What misses a wait, or uses memory again too early, reads poison; a captured graph reads afresh; waits are refused in it."""
    lab = gpu_lab(gpus=2)
    assert lab.run(1, python, "-B", SOURCE / "tests/gpulab/order.py", env=lab.env(delay_ms=5))[1][0].rstrip().endswith("failed: 0")


def test_operators_give_what_the_cpus_give(gpu_lab, python):  # noqa: F811
    assert "113 of 113" in gpu_lab().run(1, python, "-B", SOURCE / "tests/gpulab/modules.py")[1][0]


UNLIKE = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
dist.all_reduce(torch.ones(10 + dist.get_rank(), device="cuda"))
torch.cuda.synchronize()
"""


def test_collectives_that_differ_between_ranks_are_named(gpu_lab, python):  # noqa: F811
    lab = gpu_lab(gpus=2)
    _, texts = lab.run(2, python, "-c", UNLIKE, env=lab.env(nccl_mismatch="error") | {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": 100},
                       check=False)
    assert any("all-reduce of 10 float32" in text and "all-reduce of 11 float32" in text for text in texts), texts[0][-2000:]


# ---- what a rank sees --------------------------------------------------------------------------------------

# As CUDA counts for Python's torch, which asks the same library
COUNT = "import ctypes; n = ctypes.c_int(0); ctypes.CDLL(None).cudaGetDeviceCount(ctypes.byref(n)); print('seen', n.value)"


@pytest.mark.parametrize("visible", ["0,1,2,3", "2", "3,1", "1,7,0", "", "-1", "0,0", "GPU-1a02", "GPU-1a", "NoDevFiles"])
def test_the_program_counts_gpus_as_cuda_does(visible, gpu_lab, lockstep):  # noqa: F811
    lab = gpu_lab(gpus=4)
    env = {"CUDA_VISIBLE_DEVICES": visible}
    count = int(re.search(r"seen (\d+)", lab.run(1, sys.executable, "-c", COUNT, env=env)[1][0])[1])
    statuses, texts = lab.run(1, lockstep, "whoami", "--device", "cuda", env=env, check=False)
    assert (statuses == [0]) == (count > 0), texts[0]
    if count > 1:
        assert f"{count} visible GPUs" in texts[0]


@pytest.mark.parametrize("order", ["PCI_BUS_ID", "FASTEST_FIRST"])
def test_ranks_may_see_one_gpu_each_in_either_order(order, gpu_lab, train):  # noqa: F811
    lab = gpu_lab(gpus=2)
    env = lab.env(fastest=1) | {"CUDA_DEVICE_ORDER": order}
    apart = train(lab, 2, env=env, each=[{"CUDA_VISIBLE_DEVICES": rank} for rank in (1, 0)], run__name="apart", train__max_steps=4)
    assert losses(apart) == losses(train(lab, 2, env=env, run__name="all", train__max_steps=4))


def test_devices_of_stages_are_nothing_to_a_model_without(gpu_lab, train):  # noqa: F811
    lab = gpu_lab(gpus=2)
    statuses, texts = train(lab, 2, model__devices="[0,1]", train__max_steps=2, check=False)
    assert statuses == [0, 0] and "model.devices is set and not used" in texts[0], texts[0]


def test_two_slices_of_a_gpu_are_refused_by_name(gpu_lab, train):  # noqa: F811
    """NCCL takes them for one GPU: their UUIDs differ, and their bus does not."""
    lab = gpu_lab(gpus=2)
    slices = [{"CUDA_VISIBLE_DEVICES": f"MIG-3c0{number}5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a"} for number in (1, 2)]
    statuses, texts = train(lab, 2, env=lab.env(mig=1), each=slices, check=False)
    assert statuses == [2, 2] and "parts (MIG) of one GPU" in error_of(texts[0]), texts[0]
    statuses, texts = train(lab, 1, env=lab.env(mig=1), each=slices[1:], check=False, train__max_steps=2)
    assert statuses == [0], texts[0]


def test_the_doctor_finds_nothing_wrong_with_them(gpu_lab, lockstep):  # noqa: F811
    lab = gpu_lab(gpus=2)
    statuses, texts = lab.run(2, lockstep, "doctor", "--device", "cuda", check=False)
    assert statuses == [0, 0], texts[0]
    assert re.search(r"cuda:\d", texts[0])


# ---- the tests that need a GPU -------------------------------------------------------------------------------

@pytest.mark.parametrize("binary, names, world", [
    ("test_parallel", "DataParallelOnGpus.*", 1), ("test_parallel_ranks", "SyncNormOnAGpu.*", 1),
    ("test_parallel_ranks", "SyncNormOnAGpu.*", 2), ("test_parallel_ranks", "DdpOnGpus.*", 2),
    ("test_parallel_ranks", "StageLineOnGpus.*", 2), ("test_comm", "CudaPlugin.*", 1)])
def test_gtests_that_need_a_gpu_pass_on_pretended_ones(binary, names, world, gpu_lab, build_dir):  # noqa: F811
    lab = gpu_lab(gpus=4)
    _, texts = lab.run(world, build_dir / "bin" / binary, f"--gtest_filter={names}", env={"LOCKSTEP_TEST_GPU": 1})
    assert re.search(r"\[  PASSED  \] [1-9]\d* test", texts[0]) and "SKIPPED" not in texts[0], texts[0]


# ---- several nodes ---------------------------------------------------------------------------------------------

def test_two_nodes_of_two_gpus_train_as_four_cpus(gpu_lab, train):  # noqa: F811
    lab = gpu_lab(gpus=2, nodes=2)
    gpus = losses(train(lab, 4, run__name="gpus"))
    cpus = losses(train(lab, 4, run__name="cpus", launch__device="cpu"))
    assert gpus == pytest.approx(cpus, rel=1e-5) and len(gpus) == 12


# ---- faults ----------------------------------------------------------------------------------------------------

ENDLESS = dict(train__max_steps=100_000, train__epochs=1000, launch__timeout="4s", checkpoint__every_epochs=0)


def error_of(text):
    return "\n".join(line for line in text.splitlines() if "error" in line)


def test_out_of_memory_says_what_would_help(gpu_lab, train):  # noqa: F811
    lab = gpu_lab()
    statuses, texts = train(lab, env=lab.env(gpu_mb=40), check=False, data__batch_size=2048)
    assert statuses == [1], texts[0][-1500:]
    assert "out of memory" in texts[0] and "data.batch_size" in texts[0], texts[0][-1500:]


def test_an_allocation_that_fails_once_is_survived(gpu_lab, train):  # noqa: F811
    """The cache is given back, and the allocation tried again."""
    lab = gpu_lab()
    assert losses(train(lab, env=lab.env(oom_at="5,5"), run__name="once")) == losses(train(lab, run__name="never"))


@pytest.mark.parametrize("error, said", [("launch", "unspecified launch failure"), ("ecc", "ECC")])
def test_a_device_that_fails_for_good_ends_both_ranks_by_name(error, said, gpu_lab, train):  # noqa: F811
    lab = gpu_lab(gpus=2)
    statuses, texts = train(lab, 2, env=lab.env(fail_after_ops=400, fail_rank=1, fail_error=error), check=False, **ENDLESS)
    assert all(status == 1 for status in statuses), statuses
    assert said in texts[1] and "rank 1" in error_of(texts[0]), error_of(texts[0]) + error_of(texts[1])


@pytest.mark.parametrize("fault", ["hang:30", "error:30", "async:30", "kill:30"])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_a_rank_whose_nccl_fails_is_named_by_the_other(fault, graph, gpu_lab, train):  # noqa: F811
    """Where both hosts have launched what hangs nobody may be seen at fault, but both end."""
    lab = gpu_lab(gpus=2)
    how = dict(config=SOURCE / "configs/mnist_gpu.yaml", data__root=f"{DATA}/mnist", train__precision="fp32") if graph else {}
    statuses, texts = train(lab, 2, env=lab.env(nccl_fault=fault, fail_rank=1), check=False, **(ENDLESS | how))
    assert all(statuses), statuses
    named = "rank 1" in error_of(texts[0])
    assert named or (fault.startswith("hang") and "timed out after 4 s" in error_of(texts[0])), texts[0][-1500:]


def test_an_abort_that_never_returns_does_not_keep_the_ranks(gpu_lab, train):  # noqa: F811
    lab = gpu_lab(gpus=2)
    statuses, texts = train(lab, 2, env=lab.env(nccl_fault="hang:30", fail_rank=1, nccl_abort="hang"), check=False, **ENDLESS)
    assert all(statuses) and "timed out after 4 s" in error_of(texts[0]), texts[0][-1500:]


# ---- between devices and CPUs ------------------------------------------------------------------------------------

def test_a_run_goes_from_gpus_to_cpus_and_back(gpu_lab, train):  # noqa: F811
    lab = gpu_lab(gpus=2)
    whole = newest(train(lab, 2, run__name="whole"))
    for steps, device in ((4, "cuda"), (8, "cpu"), (12, "cuda")):
        parts = train(lab, 2, run__name="parts", words=["--resume", "auto"] if steps > 4 else [], train__max_steps=steps, launch__device=device)
    assert_same_tensors(newest(parts)["model"], whole["model"])


def test_evaluation_and_prediction_on_a_gpu_are_the_cpus(gpu_lab, train, lockstep):  # noqa: F811
    lab = gpu_lab()
    folder = train(lab)
    picture = DATA / "mnist" / "t10k-images-idx3-ubyte.gz"
    for words in (["eval", folder], ["predict", folder, "--input", picture]):
        gpu, cpu = (lab.run(1, lockstep, *words, *sets(launch__device=device))[1][0].splitlines()[-20:] for device in ("cuda", "cpu"))
        assert [line for line in gpu if "cuda" not in line] == [line for line in cpu if "cpu" not in line]


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


EXPORTS = """
import sys, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.last = torch.nn.Linear(784, 32), torch.nn.Linear(32, 10)

    def forward(self, x):
        return self.last(torch.relu(self.inner(x.flatten(1))) * torch.linspace(0.5, 1.5, 32, device=x.device))

torch.manual_seed(0)
net = Net().to(sys.argv[1])
program = torch.export.export(net, (torch.randn(4, 1, 28, 28, device=sys.argv[1]),), dynamic_shapes=({0: torch.export.Dim("batch")},))
torch.export.save(program, sys.argv[2])
"""


@pytest.mark.full
def test_a_model_exported_on_a_gpu_trains_on_any_device(gpu_lab, train, python):  # noqa: F811
    """The device of whoever exported it is in its graph."""
    lab = gpu_lab(gpus=2)
    for device in ("cuda:1", "cpu"):
        lab.run(1, python, "-c", EXPORTS, device, f"{device}.pt2")
    ways = {(made, used): losses(train(lab, run__name=f"{made}-{used}", model__name="exported", model__path=lab.folder / f"{made}.pt2",
                                       train__max_steps=4, launch__device=used))
            for made in ("cuda:1", "cpu") for used in ("cuda", "cpu")}
    assert len(set(map(tuple, ways.values()))) == 1, ways


@pytest.mark.full
def test_a_program_of_ones_own_runs_on_gpus(gpu_lab, installed, build_dir, tmp_path):  # noqa: F811
    shutil.copytree(SOURCE / "examples/ddp", tmp_path / "own")
    cmake = tmp_path / "own/CMakeLists.txt"
    cmake.write_text(cmake.read_text().replace("lockstep::lockstep", "lockstep::lockstep lockstep::cuda"))
    build_against(installed, build_dir, tmp_path / "own", tmp_path / "build")
    lab = gpu_lab(gpus=2)
    gpus = lab.run(2, tmp_path / "build/ddp", cwd=SOURCE)[1][0]
    cpus = lab.run(2, tmp_path / "build/ddp", cwd=SOURCE, env=lab.env(gpus=0))[1][0]
    assert "Accuracy" in gpus and [line for line in gpus.splitlines() if "|" in line] == [line for line in cpus.splitlines() if "|" in line]


# ---- ranks that share a GPU --------------------------------------------------------------------------------------

def test_ranks_share_a_gpu_where_sums_go_through_the_cpu(gpu_lab, train):  # noqa: F811
    """Two ranks on one GPU, over gloo's order: the CPUs' losses; NCCL refuses that, and auto is NCCL."""
    lab = gpu_lab(gpus=1)
    cpus = losses(train(lab, 2, run__name="cpus", launch__device="cpu"))
    for backend in ("shared", "gloo"):
        assert losses(train(lab, 2, run__name=backend, launch__backend=backend)) == pytest.approx(cpus, rel=1e-5)
    statuses, texts = train(lab, 2, run__name="auto", check=False)
    assert statuses == [2, 2] and "share one GPU" in "".join(texts)


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
