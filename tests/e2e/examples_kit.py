"""Projects built against an install, as a stranger would build them; and the examples of share/lockstep, all at once and for
all workers, as each configuration and each run of the compiler costs seconds."""

import shutil

import pytest

from conftest import SOURCE, cache_value, run_process
from process_kit import LONG_PATIENCE

NAMES = sorted(path.parent.name for path in (SOURCE / "examples").glob("*/CMakeLists.txt"))


def build_against(prefix, build_dir, source, folder, *words, flags="-Wall -Wextra -Werror", check=True):
    """Configures a project for an install and builds it in `folder` -> the build's Result. Where ccache is installed, what was
    compiled before comes from there, in whatever temporary folder that was."""
    env = {"CCACHE_BASEDIR": str(prefix.parent.parent), "CCACHE_NOHASHDIR": "1",
           "CCACHE_SLOPPINESS": "include_file_mtime,include_file_ctime,pch_defines,time_macros",
           # a precompiled header holds its headers' sums: one of another comment alone is another one
           "CCACHE_EXTRAFILES": ":".join(map(str, sorted((prefix / "include").rglob("*.h"))))}
    if shutil.which("ccache"):
        words += ("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache",)
    words += (f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_FLAGS={cache_value(build_dir, 'CMAKE_CXX_FLAGS')} {flags}")
    run_process(["cmake", "-S", source, "-B", folder, "-G", "Ninja", *words], env=env, check=True)
    return run_process(["cmake", "--build", folder], env=env, check=check, timeout=LONG_PATIENCE)


@pytest.fixture(scope="session")
def precompiled(installed, build_dir, once):
    """A word for CMake that puts lockstep.h, compiled once for all workers, in front of each source of a project."""
    def build(folder):
        (folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.24)\nproject(pch LANGUAGES CXX)\nfind_package(lockstep REQUIRED)\n"
            "add_library(pch OBJECT pch.cpp)\ntarget_link_libraries(pch PRIVATE lockstep::lockstep)\n"
            "target_precompile_headers(pch PRIVATE <lockstep/lockstep.h> <torch/torch.h>)\n")
        (folder / "pch.cpp").touch()
        build_against(installed, build_dir, folder, folder / "build", flags="-fPIC")
        header = next(folder.rglob("cmake_pch.hxx"))
        (folder / "use.cmake").write_text(f'add_compile_options(-fPIC "SHELL:-include \\"{header}\\"" -Winvalid-pch)\n')
    return f"-DCMAKE_PROJECT_TOP_LEVEL_INCLUDES={once('pch', build) / 'use.cmake'}"


def build_examples(installed, build_dir, folder, *words):
    """A copy of each example, and what is built of it in its build/."""
    for name in NAMES:
        shutil.copytree(installed / "share/lockstep/examples" / name, folder / name)
    parts = "".join(f"add_subdirectory({name} ${{CMAKE_SOURCE_DIR}}/{name}/build)\n" for name in NAMES)
    (folder / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.24)\nproject(all LANGUAGES CXX)\n{parts}")
    build_against(installed, build_dir, folder, folder / "build", *words)


@pytest.fixture(scope="session")
def examples(installed, build_dir, once, precompiled):
    return once("examples", lambda folder: build_examples(installed, build_dir, folder, precompiled))
