"""scripts/wheel: what pip installs, beside a torch wheel of the same minor version."""

import platform
import re
import shutil
import sys
import zipfile

import pytest

from conftest import SOURCE, cache_value, run_process
from examples_kit import build_against
from process_kit import LONG_PATIENCE, shared_library

sys.path.append(str(SOURCE / "scripts"))
from bundling import check  # noqa: E402

pytestmark = [pytest.mark.about("packaging", "scripts"), pytest.mark.full]

FEW_STEPS = ("train", "configs/mnist.yaml", "--set", "train.max_steps=2", "--set", "run.name=a", "--set", "optim.name=adam")
MIB = 1 << 20


@pytest.fixture(scope="session")
def wheel(build_dir, once):
    system = platform.freedesktop_os_release()
    if (system.get("ID"), system.get("VERSION_ID")) != ("debian", "12"):
        pytest.skip(f"a wheel is made on Debian 12, and this is {system.get('PRETTY_NAME')}")

    def make(folder):
        made = run_process([SOURCE / "scripts/wheel", "--build", build_dir, "--out", folder], timeout=LONG_PATIENCE)
        if "cannot fetch" in made.stderr:
            pytest.skip(f"what a wheel is linked against is not at hand: {made.stderr.splitlines()[0]}")
        assert made.returncode == 0, made.output
    return next(once("wheel", make).glob("*.whl"))


def torchs(build_dir):
    """The site-packages in which the build's torch lies."""
    root = cache_value(build_dir, "LIBTORCH_ROOT")
    return SOURCE / root / ".." if root else next((SOURCE / ".deps/python/lib").glob("*/site-packages"))


@pytest.fixture(scope="session")
def environment(wheel, build_dir, python, once):
    """An environment of Python's with the wheel and torch in it, in a path that scripts stumble over. No test changes it."""
    def make(folder):
        place = folder / "my (own) env"
        run_process([python, "-m", "venv", place], check=True)
        run_process([place / "bin/python", "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel], check=True)
        for name in ("torch", "nvidia"):  # as links: they take gigabytes
            (site_of(place) / name).symlink_to((torchs(build_dir) / name).resolve())
    return once("environment", make) / "my (own) env"


@pytest.fixture
def own_environment(environment, tmp_path):
    return shutil.copytree(environment, tmp_path / "its [own] env", symlinks=True)


def site_of(environment):
    return next(path.parent for path in environment.glob("lib/python3*/site-packages/pip"))


def test_it_is_small_and_asks_for_no_newer_system_than_its_name_says(wheel, tmp_path):
    assert wheel.name.endswith("-py3-none-manylinux_2_28_x86_64.whl") and wheel.stat().st_size < 30 * MIB
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    needs = run_process(["readelf", "-VW", *check.programs(tmp_path)], check=True).stdout
    for name, most in (("GLIBC", (2, 28)), ("GLIBCXX", (3, 4, 25))):  # PEP 600: of RHEL 8
        assert max(tuple(map(int, number.split("."))) for number in re.findall(rf"Name: {name}_([0-9.]+)", needs)) <= most
    assert not [file for file in tmp_path.rglob("*.so*") if not file.name.startswith("liblockstep")], "libtorch is torch's to bring"


def test_another_build_of_the_commit_has_the_same_bytes(wheel, tmp_path):
    """In another folder, at another depth, and compiled anew."""
    if run_process(["git", "-C", SOURCE, "status", "--porcelain"], check=True).stdout:
        pytest.skip("the working tree has changes that no commit has")
    source = tmp_path / "another/clone"
    run_process(["git", "clone", "-q", SOURCE, source], check=True)
    (source / ".deps").symlink_to(SOURCE / ".deps")
    build = source / "build/a/second"
    run_process(["cmake", "--preset", "release", "-B", build, "-DLOCKSTEP_CCACHE=OFF", "-DLOCKSTEP_TESTS=OFF"], cwd=source, check=True)
    run_process(["cmake", "--build", build, "--target", "lockstep_ready", "lockstep_fast"], check=True, timeout=10 * LONG_PATIENCE)
    run_process([source / "scripts/wheel", "--build", build, "--out", tmp_path], check=True, timeout=LONG_PATIENCE)
    first, second = (zipfile.ZipFile(path) for path in (wheel, tmp_path / wheel.name))
    assert [name for name in first.namelist() if first.read(name) != second.read(name)] == []
    assert wheel.read_bytes() == (tmp_path / wheel.name).read_bytes()


@pytest.mark.mpi
def test_its_command_trains_with_the_bits_of_the_build(environment, lockstep, mpirun, python, tmp_path):
    command = environment / "bin/lockstep"
    assert command.read_bytes()[:4] == b"\x7fELF", "a program, and no script of Python's"
    for name, program in (("build", lockstep), ("wheel", command)):
        (tmp_path / name).mkdir()
        mpirun(2, program, *FEW_STEPS, cwd=tmp_path / name, check=True)
    saved = [next((tmp_path / name).glob("runs/a/checkpoints/*.pt")) for name in ("build", "wheel")]
    run_process([python, "-c", "import sys, torch; a, b = (torch.load(path)['model'] for path in sys.argv[1:]); "
                 "assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)", *saved], check=True)


def test_a_strangers_project_finds_the_library_in_it(environment, build_dir, tmp_path):
    prefix = run_process([environment / "bin/lockstep", "--cmake-prefix"], check=True).stdout.strip()
    assert prefix == str(site_of(environment) / "lockstep_ddp")
    project = tmp_path / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.24)\nproject(one LANGUAGES CXX)\n"
                                            "find_package(lockstep REQUIRED)\nadd_executable(one one.cpp)\n"
                                            "target_link_libraries(one lockstep::lockstep)\n")
    (project / "one.cpp").write_text("#include <lockstep/parallel/session.h>\n#include <cstdio>\n"
                                     "int main() { lockstep::Session session; std::printf(\"%d\\n\", session.world()); }\n")
    build_against(site_of(environment) / "lockstep_ddp", build_dir, project, tmp_path / "built")
    assert run_process([tmp_path / "built/one"], check=True).stdout == "1\n"


def test_python_finds_the_backend_in_it(environment, build_dir, tmp_path):
    run_process([environment / "bin/python", SOURCE / "tests/python/failures.py", "no_destroy"],
                env={"PYTHONPATH": torchs(build_dir), "TMPDIR": str(tmp_path)}, check=True)


@pytest.mark.mpi
def test_a_half_from_another_build_is_refused(own_environment, mpirun, tmp_path):
    half = shared_library(tmp_path, "half.so", "int version = 1; void* lockstep_mpi_table(void) { return &version; }\n")
    for own in (site_of(own_environment) / "lockstep_ddp/lib").glob("liblockstep_mpi_*.so"):
        shutil.copy(half, own)
    result = mpirun(1, own_environment / "bin/lockstep", "whoami")
    assert result.returncode == 2, result.output
    assert re.search(r"belongs to another version of lockstep: 1, not \d+\n  --> .*liblockstep_mpi_\w+\.so\n"
                     "  hint: install all of lockstep from one build", result.stderr), result.output


def torch_of_another_version(site):
    (site / "torch").unlink()
    (site / "torch").mkdir()
    (site / "torch/lib").mkdir()
    (site / "torch/lib/libtorch_cpu.so").touch()
    (site / "torch/version.py").write_text("from typing import Optional\n\n__version__ = '2.6.1+cu124'\n")


@pytest.mark.parametrize("spoil,said,remedy", [
    (lambda site: (site / "torch").unlink(), r"loads the libraries of torch 2\.\d+, but torch is not installed next to it", r"run pip install --ignore-installed 'torch==2\.\d+\.\*'"),
    (torch_of_another_version, r"was compiled against torch 2\.\d+, but torch 2\.6\.1\+cu124 is installed next to it",
     r"run pip install --ignore-installed 'torch==2\.\d+\.\*'")])
def test_what_is_wrong_with_an_environment_is_said_with_the_line_that_mends_it(spoil, said, remedy, own_environment):
    spoil(site_of(own_environment))
    result = run_process([own_environment / "bin/lockstep", "train", "configs/pima.yaml"])
    assert result.returncode == 2 and re.search(f"^error: .*{said}\n  --> .*{re.escape(str(own_environment))}.*\n  hint: {remedy}",
                                                result.stderr), result.output
