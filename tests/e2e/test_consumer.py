"""Programs of others around the library: it is held as a source tree, found by pkg-config, or beside another libtorch."""

import shutil

import pytest
from conftest import SOURCE, cache_value
from process_kit import LONG_PATIENCE

pytestmark = [pytest.mark.about("cmake", "packaging"), pytest.mark.full]

MAIN = """#include <lockstep/parallel/session.h>
int main() {
  return lockstep::run([] {
    lockstep::Session session;
    session.print("world {}", session.world());
  });
}
"""


@pytest.fixture
def project(tmp_path):
    """project(how lockstep is had) -> the folder of a small program's project."""
    def make(how):
        (tmp_path / "main.cpp").write_text(MAIN)
        (tmp_path / "CMakeLists.txt").write_text(
            f"cmake_minimum_required(VERSION 3.24)\nproject(own LANGUAGES C CXX)\n{how}\n"
            "add_executable(own main.cpp)\ntarget_link_libraries(own PRIVATE lockstep::lockstep)\n")
        return tmp_path
    return make


def test_a_project_may_hold_it(project, build_dir, mpirun, run):
    """Its program is compiled as CMake says; it is linked to the library that is built already."""
    # CMake's FetchContent ends in add_subdirectory
    folder = project(f'include(FetchContent)\nFetchContent_Declare(lockstep SOURCE_DIR "{SOURCE}" BINARY_DIR lockstep)\n'
                     "FetchContent_MakeAvailable(lockstep)")
    build = folder / "build"
    words = [f"-D{name}={cache_value(build_dir, name)}" for name in ("CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS", "LIBTORCH_ROOT")]
    run("cmake", "-S", folder, "-B", build, "-G", "Ninja", *words, check=True)
    assert not (build / "bin").exists() and not list(build.glob("unity")), "its folders are its own"
    run("ninja", "-C", build, "CMakeFiles/own.dir/main.cpp.o", check=True, timeout=LONG_PATIENCE)
    (build / "lockstep/lib").mkdir(exist_ok=True)
    for library in (build_dir / "lib").iterdir():
        (build / "lockstep/lib" / library.name).symlink_to(library)
    link = run("ninja", "-C", build, "-t", "commands", "own", check=True).stdout.splitlines()[-1]
    run("sh", "-c", link, cwd=build, check=True)
    assert "world 2" in mpirun(2, build / "own", check=True).stdout
    assert "lockstep" not in run("cmake", "--install", build, "--prefix", folder / "prefix", check=True).stdout.replace(
        str(folder), "")


def test_pkg_config_knows_it(installed, build_dir, mpirun, run, tmp_path):
    if " " in str(SOURCE):
        pytest.skip("pkg-config quotes no folder with a space after -isystem and -Wl,-rpath")
    (tmp_path / "main.cpp").write_text(MAIN)
    files = list(installed.rglob("lockstep.pc"))
    assert len(files) == 1
    moved = tmp_path / "moved"
    shutil.copytree(installed, moved, symlinks=True)
    env = {"PKG_CONFIG_PATH": str(moved / files[0].parent.relative_to(installed))}
    flags = run("pkg-config", "--cflags", "--libs", "lockstep", env=env, check=True).stdout.split()
    compiler = cache_value(build_dir, "CMAKE_CXX_COMPILER")
    run(compiler, *cache_value(build_dir, "CMAKE_CXX_FLAGS").split(), tmp_path / "main.cpp", "-o", tmp_path / "own", *flags,
        check=True, timeout=LONG_PATIENCE)
    assert "world 2" in mpirun(2, tmp_path / "own", check=True).stdout


TORCH = """set(TORCH_INSTALL_PREFIX ${CMAKE_CURRENT_LIST_DIR})
add_library(torch_cpu SHARED IMPORTED)
set_target_properties(torch_cpu PROPERTIES IMPORTED_CONFIGURATIONS RELEASE IMPORTED_LOCATION_RELEASE "%s")
"""


@pytest.mark.parametrize("first, second", [("Torch", "lockstep"), ("lockstep", "Torch")])
def test_two_libtorchs_are_refused_by_their_paths(first, second, project, installed, build_dir, run):
    folder = project(f"find_package({first} REQUIRED)\nfind_package({second} REQUIRED)")
    (folder / "torch").mkdir()
    ours = next(line.split('"')[1] for line in next(installed.rglob("lockstepConfig.cmake")).read_text().splitlines()
                if "LIBTORCH_HINTS" in line)
    for library, status in ((folder / "torch/libtorch_cpu.so", 1), (f"{ours}/lib/libtorch_cpu.so", 0)):
        (folder / "torch/TorchConfig.cmake").write_text(TORCH % library)
        result = run("cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}",
                     f"-DTorch_DIR={folder}/torch")
        assert result.returncode == status, result.output
        if status:
            words = " ".join(result.stderr.split())
            assert "two libtorchs in one project" in words and f"{ours}/lib" in words and " ".join(str(library).split()) in words, words
