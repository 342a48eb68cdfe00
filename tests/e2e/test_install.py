"""cmake --install: runs from any folder, read-only, moved; and a stranger's project builds against it."""

import os
import pathlib
import re

import pytest

from conftest import SOURCE, cache_value
from examples_kit import build_against
from process_kit import read_only

pytestmark = pytest.mark.about("cmake", "packaging")


def test_it_trains_from_a_read_only_place(installed, mpiexec, run, tmp_path):
    words = read_only(installed)
    assert run(*words, "touch", installed / "new").returncode != 0
    result = run(*words, mpiexec, "-n", "2", installed / "bin/lockstep", "train", "configs/pima.yaml",
                 "--set", "train.epochs=1", cwd=tmp_path, check=True)
    assert re.search(r"Epoch 0 \| Average Loss: \d", result.output)
    assert (tmp_path / "runs").is_dir()


def test_it_may_be_moved_and_keeps_its_own_libtorch(build_dir, lockstep, run, tmp_path):
    run("cmake", "--install", build_dir, "--prefix", tmp_path / "first", check=True)
    moved = (tmp_path / "first").rename(tmp_path / "elsewhere")
    for name in ("libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13"):
        (tmp_path / name).write_text("no library at all")
    for program in (moved / "bin/lockstep", lockstep):
        run(program, "whoami", env={"LD_LIBRARY_PATH": tmp_path}, check=True)
    assert "batch_size" in run(moved / "bin/lockstep", "config", "configs/mnist.yaml", cwd="/", check=True).stdout
    for name in ("data/mnist/train-images-idx3-ubyte.gz", "job_scripts/ddp.slurm", "tutorials/models/line.pt2", "LICENSE"):
        assert (moved / "share/lockstep" / name).exists(), name


@pytest.mark.parametrize("typed, fits", [
    ("st", "status stop"), ("help wo", "workshop"), ("bench al", "allreduce"), ("bench step --st", "--steps"), ("train a.yaml --dr", "--dry-run"),
    ("train --set optim.l", "optim.lr="), ("train --launcher fl", "flux"), ("workshop --wr", "--wrong"), ("train no-such-", "")])
def test_bash_completes_what_the_program_knows(typed, fits, installed, run):
    words = ["lockstep", *typed.split()]
    script = (f"compopt() {{ :; }}; source {installed}/share/bash-completion/completions/lockstep; COMP_WORDS=({' '.join(words)}); "
              f"COMP_CWORD={len(words) - 1}; _lockstep {installed}/bin/lockstep; echo ${{COMPREPLY[@]}}")
    assert run("bash", "-c", script, check=True).stdout.split() == fits.split()


def test_the_manual_describes_each_command(installed, lockstep, run):
    page = (installed / "share/man/man1/lockstep.1").read_text()
    listed = run(lockstep, "--help", check=True).stdout.split("commands:\n")[1].split("\noptions:")[0]
    sections = set(re.findall(r"^\.SS \\&lockstep (\w+)", page, re.M))
    assert sections == set(re.findall(r"^  (\w+) ", listed, re.M)) - {"job"}
    assert "\n.TP\n\\fB\\&\\-\\-resume auto|PATH\\fR\n" in page


def test_another_minor_version_is_another_library(installed, run, tmp_path):
    library, = (installed / "lib").glob("liblockstep.so.*.*.*")
    major, minor, _ = library.name.removeprefix("liblockstep.so.").split(".")
    soname = f"liblockstep.so.{major}.{minor}" if major == "0" else f"liblockstep.so.{major}"
    assert f"[{soname}]" in run("readelf", "-d", library, check=True).stdout
    script = tmp_path / "asks.cmake"
    script.write_text(f"include({next(installed.rglob('lockstepConfigVersion.cmake'))})\n"
                      "if(NOT PACKAGE_VERSION_COMPATIBLE)\n  message(FATAL_ERROR no)\nendif()\n")
    for asked, status in ((minor, 0), (int(minor) + 1, 1)):
        wanted = {"": f"{major}.{asked}", "_MAJOR": major, "_MINOR": asked}
        words = [f"-DPACKAGE_FIND_VERSION{part}={value}" for part, value in wanted.items()]
        assert run("cmake", *words, "-P", script).returncode == status


def test_installed_headers_include_none_that_is_not_installed(installed):
    found = {(header.name, name) for header in installed.rglob("include/lockstep/**/*.h")
             for name in re.findall(r'^#include [<"](lockstep/[^>"]+)', header.read_text(), re.M) if not (installed / "include" / name).exists()}
    assert found == set()


@pytest.mark.full  # a minute of both cores
def test_each_header_compiles_alone(installed, build_dir, tmp_path):
    headers = sorted(str(path.relative_to(installed / "include/lockstep")) for path in installed.rglob("include/lockstep/**/*.h"))
    assert len(headers) > 50
    files = {f"header_{n}.cpp": header for n, header in enumerate(headers)}
    for name, header in files.items():
        (tmp_path / name).write_text(f"#include <lockstep/{header}>\n")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\nproject(headers LANGUAGES CXX)\nfind_package(lockstep REQUIRED)\n"
        f"add_library(headers OBJECT {' '.join(files)})\n"
        "target_link_libraries(headers PRIVATE lockstep::lockstep)\n"
        "target_compile_options(headers PRIVATE -fsyntax-only -Wall -Wextra -Werror)\n")
    build_against(installed, build_dir, tmp_path, tmp_path / "build", flags="")


LIBRARY = [str(path.relative_to(SOURCE / "src/lockstep")).replace("/", "_")
           for path in (SOURCE / "src/lockstep").rglob("*") if list(path.glob("*.cpp"))]


def test_the_library_exports_the_names_of_lockstep_alone(installed, run):
    needed = run("readelf", "-d", installed / "lib/liblockstep.so", check=True).stdout
    assert "libtorch_cpu.so" in needed and not re.search(r"yaml|boost|libmpi", needed)
    for library in (installed / "lib/liblockstep.so", *installed.glob("lib/liblockstep_course.so")):
        names = [line.split()[-1] for line in run("nm", "-D", "--defined-only", library, check=True).stdout.splitlines()]
        assert names and not [name for name in names if not re.match(r"_Z[A-Za-z0-9_]*?8lockstep|lockstep_", name)], library


def test_a_new_key_of_the_trainer_compiles_no_module_of_the_library(build_dir, installed, run):
    """By what the compiler wrote down of each object's headers; nor does a user include what holds the keys."""
    readers, target = set(), ""
    for line in run("ninja", "-C", build_dir, "-t", "deps", check=True).stdout.splitlines():
        if not line.startswith(" "):
            target = line
        elif "trainer/config/" in line and (module := re.match(r"src/CMakeFiles/lockstep_(\w+)\.dir/", target)):
            readers.add(module[1])
    assert {"config", "setup", "cluster"} <= readers and not readers & set(LIBRARY)
    assert not (installed / "include/lockstep/config").exists()


@pytest.mark.full  # compiles with libtorch's headers
def test_a_strangers_project_builds_against_it_and_trains_as_pythons_does(installed, build_dir, mpirun, mpi, python, run, tmp_path):
    build_against(installed, build_dir, SOURCE / "tests/consumer", tmp_path, "-DCMAKE_BUILD_TYPE=Release")
    result = mpirun(2, tmp_path / "consumer", check=True)
    twin = run(python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
               SOURCE / "tests/consumer/twin.py", check=True)
    assert result.stdout.count("Average Loss") == 20
    assert result.stdout == twin.stdout
    threads = os.cpu_count() + 1
    warned = mpirun(2, "sh", "-c", f'[ "${mpi.rank}" = 1 ] && export OMP_NUM_THREADS={threads}; exec {tmp_path}/consumer',
                    check=True).stderr
    assert warned.count(f"warning: rank 1: OMP_NUM_THREADS={threads} is more than this rank's share") == 1


# --- which libtorch ---------------------------------------------------------------------------------------------------


def looks_for_libtorch(folder, run, *words):
    """What CMake says where lockstep's module looks for libtorch."""
    (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.24)\nproject(one CXX)\n"
                                           f"list(APPEND CMAKE_MODULE_PATH {SOURCE}/cmake)\nfind_package(Libtorch REQUIRED)\n"
                                           'message(STATUS "without CUDA: ${Libtorch_CUDA_MISSING}")\n')
    result = run("cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja", *words)
    return result.returncode, " ".join(result.output.split())


def a_libtorch(folder, minor=15, library="lib"):
    """As much of one as CMake looks at."""
    for place in ("include/torch/headeronly", "include/torch/csrc/distributed/c10d", library, "share/cmake/Torch"):
        (folder / place).mkdir(parents=True)
    (folder / "include/torch/script.h").touch()
    (folder / "include/torch/headeronly/version.h").write_text(
        "".join(f"#define TORCH_VERSION_{part} {number}\n" for part, number in (("MAJOR", 2), ("MINOR", minor), ("PATCH", 0))))
    for name in (f"{library}/libtorch_cpu.so", f"{library}/libc10.so", "include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp",
                 "share/cmake/Torch/TorchConfig.cmake"):
        (folder / name).touch()
    return folder


@pytest.mark.parametrize("minor,flags,why", [
    (6, "", "2.6.0 in {}: older than 2.7"),
    (15, 'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")\n', "2.15.0 in {}: built for the C++ ABI from before C++11")])
def test_a_libtorch_that_cannot_be_used_is_refused_with_the_reason(minor, flags, why, tmp_path, run):
    torch = a_libtorch(tmp_path / "torch", minor)
    (torch / "share/cmake/Torch/TorchConfig.cmake").write_text(flags)
    status, said = looks_for_libtorch(tmp_path, run, f"-DLIBTORCH_ROOT={torch}")
    assert status == 1 and "lockstep needs libtorch 2.7 or newer" in said and why.format(torch) in said


@pytest.mark.parametrize("named, inner, library", [
    ("CMAKE_PREFIX_PATH", "libtorch", "lib"), ("LIBTORCH_ROOT", "lib/python3.12/site-packages/torch", "lib"),
    ("Torch_DIR", ".", "lib"), ("CMAKE_PREFIX_PATH", ".", "lib/x86_64-linux-gnu")], ids=["zip", "wheel", "conda", "Debian"])
def test_a_libtorch_is_found_in_the_layout_of(named, inner, library, tmp_path, run):
    torch = a_libtorch(tmp_path / "place" / inner, library=library)
    place = torch / "share/cmake/Torch" if named == "Torch_DIR" else tmp_path / "place"
    status, said = looks_for_libtorch(tmp_path, run, f"-D{named}={place}", "-DLIBTORCH_HINTS=")
    assert status == 0 and f'Found Libtorch: {torch.resolve() / library}/libtorch_cpu.so (found version "2.15.0")' in said


@pytest.mark.full
@pytest.mark.parametrize("fits", [True, False])
def test_a_libtorch_from_the_future_is_tried(fits, build_dir, tmp_path, run):
    real = pathlib.Path(cache_value(build_dir, "LIBTORCH_ROOT") or next((SOURCE / ".deps/python/lib").glob("*/site-packages/torch")))
    version, reducer = "include/torch/headeronly/version.h", "include/torch/csrc/distributed/c10d/reducer.hpp"
    if not (real / version).exists():
        pytest.skip(f"{real} has its version elsewhere")
    torch = tmp_path / "torch"
    run("cp", "-rs", real, torch, check=True)  # links, but for what is written anew
    changed = {version: re.sub(r"(VERSION_MINOR) \d+", r"\1 99", (real / version).read_text())}
    if not fits:
        changed[reducer] = (real / reducer).read_text().replace("bool use_python_reducer", "bool use_python_reducer, double speed")
    for name, text in changed.items():
        (torch / name).unlink()
        (torch / name).write_text(text)
    status, said = looks_for_libtorch(tmp_path, run, f"-DLIBTORCH_ROOT={torch}")
    assert "libtorch 2.99" in said and "is newer than 2.15, the last that lockstep's tests have run with" in said
    if fits:
        assert status == 0
    else:
        assert status == 1 and f"in {torch} does not fit this lockstep" in said
        assert "DDP's Reducer is made with arguments that lockstep does not know" in said
