"""Projects built against an install, as a stranger would build them; and so the examples of share/lockstep, all at once and for
all workers, as each configuration and each run of the compiler costs seconds."""

import shutil

import pytest

from conftest import SOURCE, cache_value, run_process

NAMES = sorted(path.parent.name for path in (SOURCE / "examples").glob("*/CMakeLists.txt"))

# no example: an exception on one rank only, inside lockstep::run
THROWS = ("#include <lockstep/parallel/session.h>\n#include <lockstep/base/error.h>\n"
          "int main() {\n  return lockstep::run([] {\n    lockstep::Session session;\n"
          '    if (session.rank() == 1) throw lockstep::InputError("rank 1 met a bad row", "row 7", "mend it");\n'
          "    session.team().barrier();\n  });\n}\n")


def build_against(prefix, build_dir, source, folder, *words, flags="-Wall -Wextra -Werror", check=True):
    """Configures a project for an install and builds it in `folder` -> the build's Result. Where ccache is installed, what was
    compiled before comes from there, in whatever temporary folder that was."""
    env = {"CCACHE_BASEDIR": str(prefix.parent.parent), "CCACHE_NOHASHDIR": "1",
           "CCACHE_SLOPPINESS": "include_file_mtime,include_file_ctime"}
    if shutil.which("ccache"):
        words += ("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache",)
    words += (f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_FLAGS={cache_value(build_dir, 'CMAKE_CXX_FLAGS')} {flags}")
    run_process(["cmake", "-S", source, "-B", folder, "-G", "Ninja", *words], env=env, check=True)
    return run_process(["cmake", "--build", folder], env=env, check=check, timeout=900)


@pytest.fixture(scope="session")
def examples(installed, build_dir, once):
    """A folder with a copy of each example, what is built of it in its build/, and the program throws/build/throws."""
    def build(folder):
        for name in NAMES:
            shutil.copytree(installed / "share/lockstep/examples" / name, folder / name)
        (folder / "throws").mkdir()
        (folder / "throws/main.cpp").write_text(THROWS)
        (folder / "throws/CMakeLists.txt").write_text((SOURCE / "examples/ddp/CMakeLists.txt").read_text()
                                                      .replace("ddp", "throws"))
        parts = "".join(f"add_subdirectory({name} ${{CMAKE_SOURCE_DIR}}/{name}/build)\n" for name in [*NAMES, "throws"])
        (folder / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.24)\nproject(all LANGUAGES CXX)\n{parts}")
        build_against(installed, build_dir, folder, folder / "build")
    return once("examples", build)
