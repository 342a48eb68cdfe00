"""scripts/wheel: what pip installs, beside a torch wheel of the same minor version."""

import base64
import csv
import hashlib
import platform
import re
import shutil
import sys
import zipfile

import pytest

from conftest import SOURCE, cache_value, run_process
from examples_kit import build_against
from process_kit import LONG_PATIENCE, read_only, shared_library

sys.path.append(str(SOURCE / "scripts"))
from bundling import check  # noqa: E402

pytestmark = pytest.mark.about("packaging", "scripts")

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


def bring_torch(site, build_dir):
    """The folders of torch's wheel and of NVIDIA's, as links: they take gigabytes."""
    for name in ("torch", "nvidia"):
        (site / name).symlink_to((torchs(build_dir) / name).resolve())


@pytest.fixture(scope="session")
def environment(wheel, build_dir, python, once):
    """An environment of Python's with the wheel and torch in it, in a path that scripts stumble over. No test changes it."""
    def make(folder):
        place = folder / "my (own) env"
        run_process([python, "-m", "venv", place], check=True)
        run_process([place / "bin/python", "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel], check=True)
        bring_torch(site_of(place), build_dir)
    return once("environment", make) / "my (own) env"


@pytest.fixture
def own_environment(environment, tmp_path):
    return shutil.copytree(environment, tmp_path / "its [own] env", symlinks=True)


def python_of(environment):
    """python3.11: the Python that made it."""
    return next(path.name for path in environment.glob("lib/python3*") if (path / "site-packages/pip").exists())


def site_of(environment):
    return environment / "lib" / python_of(environment) / "site-packages"


def test_it_is_small_and_asks_for_no_newer_system_than_its_name_says(wheel, tmp_path):
    assert wheel.name.endswith("-py3-none-manylinux_2_28_x86_64.whl") and wheel.stat().st_size < 30 * MIB
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    newest = check.newest(tmp_path)
    assert newest["GLIBC"] <= (2, 28) and newest["GLIBCXX"] <= (3, 4, 25)  # PEP 600: of RHEL 8
    assert not [file for file in tmp_path.rglob("*.so*") if not file.name.startswith("liblockstep")], "libtorch is torch's to bring"


def test_pip_can_trust_its_list_of_files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        record = next(name for name in names if name.endswith(".dist-info/RECORD"))
        rows = list(csv.reader(archive.read(record).decode().splitlines()))
        assert sorted(row[0] for row in rows) == sorted(names)
        for name, digest, size in rows:
            if name != record:
                data = archive.read(name)
                assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert int(size) == len(data)


def test_it_asks_for_torch_of_the_same_minor_version(wheel, build_dir):
    with zipfile.ZipFile(wheel) as archive:
        about = archive.read(next(name for name in archive.namelist() if name.endswith("METADATA"))).decode()
    minor = ".".join(cache_value(build_dir, "LOCKSTEP_LIBTORCH_VERSION").split(".")[:2])
    assert f"\nRequires-Dist: torch=={minor}.*\n" in about and "\nName: lockstep-ddp\n" in about


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


def test_it_brings_configs_job_scripts_and_the_course(environment, tmp_path):
    share = site_of(environment) / "lockstep_ddp/share/lockstep"
    for name in ("configs/pima.yaml", "job_scripts/ddp.slurm", "job_scripts/ddp.pbs", "tutorials/01-first-job.md",
                 "tutorials/models/line.pt2", "data/pima"):
        assert (share / name).exists(), name
    run_process([environment / "bin/lockstep", "config", "configs/pima.yaml"], cwd=tmp_path, check=True)


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


@pytest.mark.full  # a minute; the project above is built with it too
def test_an_exercise_of_the_course_is_built_with_it(environment, tmp_path):
    run_process([environment / "bin/lockstep", "workshop", "init", tmp_path / "course"], check=True)
    checked = run_process([environment / "bin/lockstep", "check", "start.1"], cwd=tmp_path / "course", timeout=LONG_PATIENCE)
    assert "Not yet: with 5 ranks" in checked.stdout, checked.output  # built, run, and judged


def test_a_folder_that_pip_filled_as_a_target_works(wheel, build_dir, python, tmp_path):
    run_process([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", tmp_path / "there", wheel], check=True)
    bring_torch(tmp_path / "there", build_dir)
    run_process([tmp_path / "there/bin/lockstep", "config", "configs/pima.yaml"], cwd=tmp_path, check=True)


def test_what_pip_installs_for_one_user_works(wheel, build_dir, python, tmp_path):
    base = run_process([python, "-c", "import sys; print(sys._base_executable)"], check=True).stdout.strip()
    home = {"PYTHONUSERBASE": str(tmp_path / "user"), "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    made = run_process([base, "-m", "pip", "install", "-q", "--user", "--no-index", "--no-deps", wheel], env=home)
    if "No module named pip" in made.stderr:
        pytest.skip(f"{base} has no pip")
    assert made.returncode == 0, made.output
    bring_torch(next((tmp_path / "user").glob("lib/python3*/site-packages")), build_dir)
    run_process([tmp_path / "user/bin/lockstep", "config", "configs/pima.yaml"], cwd=tmp_path, check=True)


def test_it_trains_from_a_read_only_environment(environment, tmp_path):
    words = read_only(environment)
    assert run_process([*words, "touch", environment / "new"]).returncode != 0
    run_process([*words, environment / "bin/lockstep", *FEW_STEPS], cwd=tmp_path, check=True)


def test_a_sites_library_path_puts_no_other_libtorch_in_the_place_of_torchs(environment, tmp_path):
    for name in ("libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13", "liblockstep.so.0.1"):
        (tmp_path / name).write_text("no library at all")
    run_process([environment / "bin/lockstep", "whoami"], env={"LD_LIBRARY_PATH": tmp_path}, check=True)


@pytest.mark.mpi
def test_a_half_from_another_build_is_refused(own_environment, mpirun, tmp_path):
    half = shared_library(tmp_path, "half.so", "int version = 1; void* lockstep_mpi_table(void) { return &version; }\n")
    for own in (site_of(own_environment) / "lockstep_ddp/lib").glob("liblockstep_mpi_*.so"):
        shutil.copy(half, own)
    result = mpirun(1, own_environment / "bin/lockstep", "whoami")
    assert result.returncode == 2, result.output
    assert re.search(r"is of another lockstep: its version is 1, and this one's \d+\n  where: .*liblockstep_mpi_\w+\.so\n"
                     "  to do: install all of lockstep from one build", result.stderr), result.output


def test_it_goes_without_a_trace(own_environment):
    run_process([own_environment / "bin/python", "-m", "pip", "uninstall", "-q", "-y", "lockstep-ddp"], check=True)
    left = [path for path in site_of(own_environment).glob("lockstep_ddp/**/*") if not path.is_dir()]
    assert not left and not (own_environment / "bin/lockstep").exists()


def test_of_several_pythons_under_one_prefix_it_takes_the_one_whose_torch_fits(own_environment):
    older = own_environment / "lib/python3.10/site-packages"
    shutil.copytree(site_of(own_environment) / "lockstep_ddp/bin", older / "lockstep_ddp/bin")
    (older / "torch").mkdir()
    (older / "torch/version.py").write_text("__version__ = '2.6.0'\n")
    where = run_process([own_environment / "bin/lockstep", "--cmake-prefix"], check=True).stdout
    assert where == f"{own_environment}/lib/{python_of(own_environment)}/site-packages/lockstep_ddp\n"


AGAIN = "install the wheel again: pip install --force-reinstall --no-deps lockstep_ddp-"
WHOLE_TORCH = r"pip install --force-reinstall 'torch==2\.\d+\.\*'"


def no_torch(site):
    (site / "torch").unlink()


def torch_of_another_version(site):
    (site / "torch").unlink()
    (site / "torch").mkdir()
    (site / "torch/lib").mkdir()
    (site / "torch/lib/libtorch_cpu.so").touch()
    (site / "torch/version.py").write_text("from typing import Optional\n\n__version__ = '2.6.1+cu124'\n")


def half_installed(site):
    shutil.rmtree(site / "lockstep_ddp/bin")


def without_the_library(site):
    for file in (site / "lockstep_ddp/lib").glob("liblockstep.so.*"):
        file.unlink()


def torch_without_a_library(site):
    real = (site / "torch").resolve()
    (site / "torch").unlink()
    (site / "torch/lib").mkdir(parents=True)
    for file in ("version.py", "lib/libtorch_cpu.so"):
        (site / "torch" / file).symlink_to(real / file)


def torch_without_its_dependencies(site):
    (site / "nvidia").unlink()


@pytest.mark.parametrize("spoil,said,remedy", [
    (no_torch, r"loads the libraries of torch 2\.\d+, and there is no torch beside it", r"pip install --ignore-installed 'torch==2\.\d+\.\*'"),
    (torch_of_another_version, r"was compiled against torch 2\.\d+, and beside it is torch 2\.6\.1\+cu124",
     r"pip install --ignore-installed 'torch==2\.\d+\.\*'"),
    (half_installed, "half an installation", AGAIN),
    (without_the_library, r"half an installation of lockstep: there is no lockstep_ddp/lib/liblockstep\.so\.[\d.]+", AGAIN),
    (torch_without_a_library, r"half an installation of torch 2\.\d+: there is no torch/lib/libc10\.so", WHOLE_TORCH),
    (torch_without_its_dependencies, r"half an installation of torch 2\.\d+: there is no nvidia/.*/libcu\w+\.so\.\d+", WHOLE_TORCH)])
def test_what_is_wrong_with_an_environment_is_said_with_the_line_that_mends_it(spoil, said, remedy, own_environment):
    spoil(site_of(own_environment))
    result = run_process([own_environment / "bin/lockstep", "train", "configs/pima.yaml"])
    assert result.returncode == 2 and re.search(f"^error: .*{said}\n  where: .*{re.escape(str(own_environment))}.*\n  to do: {remedy}",
                                                result.stderr), result.output


@pytest.mark.parametrize("what,said", [
    ("older", r"error: this lockstep needs the libstdc\+\+ of gcc 8 .* an older one is found first\n  where: {}/libstdc\+\+\.so\.6\n"),
    ("broken", r"error: the C\+\+ library cannot be loaded\n  where: {}/libstdc\+\+\.so\.6: .*\n")])
def test_a_cpp_library_that_does_not_do_is_named(what, said, environment, tmp_path):
    if what == "older":
        shared_library(tmp_path, "libstdc++.so.6", "void nothing(void) {}\n")
    else:
        (tmp_path / "libstdc++.so.6").write_text("no library at all")
    result = run_process([environment / "bin/lockstep", "whoami"], env={"LD_LIBRARY_PATH": tmp_path})
    assert result.returncode == 2, result.output
    assert re.match(said.format(re.escape(str(tmp_path))) + "  to do: .*unset LD_LIBRARY_PATH", result.stderr), result.output


# the launcher as it is, but for the loader and the C library that it names: those of Ubuntu 18.04, against which a wheel is linked
def test_a_c_library_that_is_too_old_is_named(own_environment, tmp_path):
    baseline = SOURCE / ".deps/baseline"
    for package in baseline.glob("libc6_*.deb"):
        run_process(["dpkg-deb", "-x", package, tmp_path / "old"], check=True)
    folder = tmp_path / "old/lib/x86_64-linux-gnu"
    run_process([next(baseline.glob("patchelf-*")), "--set-interpreter", folder / "ld-linux-x86-64.so.2", "--set-rpath", folder,
                 own_environment / "bin/lockstep"], check=True)
    result = run_process([own_environment / "bin/lockstep", "whoami"])
    assert result.returncode == 2 and re.match(r"error: torch 2\.\d+ and this lockstep need glibc 2\.28, and this system has 2\.27\n",
                                               result.stderr), result.output
