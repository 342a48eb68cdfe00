"""Checks the files of a wheel: no run path leads elsewhere, no MPI is inside, nothing is newer than the baseline."""

import pathlib
import re

from .baseline import FLOOR
from .errors import PackagingError, output
from .binaries import SKIPPED, dynamic, run_path


TORCHS = re.compile(r"lib(torch|c10|gomp|cudart|cupti|nccl)")


def programs(root):
    """Every ELF file in a folder."""
    for file in sorted(root.rglob("*")):
        if file.is_file() and not file.is_symlink():
            with open(file, "rb") as opened:
                if opened.read(4) == b"\x7fELF":
                    yield file


def check(root, beside=(), build_folders=()):
    """`beside`: run paths that may lead out of it, to what comes with torch's wheel."""
    for file in programs(root):
        name = file.relative_to(root)
        for folder in build_folders:
            if re.search(rb"(?<![\w./-])" + re.escape(str(folder)).encode() + b"/", file.read_bytes()):
                raise PackagingError(f"{name} names {folder}, so another build has other bytes", "see cmake/LockstepModules.cmake")
        for need in re.findall(r"Name: ([A-Z]+_\S+)", output("readelf", "-VW", file).partition("Version needs section")[2]):
            kind, _, number = need.partition("_")
            if not re.fullmatch(r"[0-9.]+", number):  # GLIBC_PRIVATE, GLIBC_ABI_DT_RELR: of one C library, or of those after 2.35
                if kind == "GLIBC":
                    raise PackagingError(f"{name} needs {need}, which other C libraries may lack",
                                         "link it without -z pack-relative-relocs and without glibc's private symbols")
            elif kind not in FLOOR or tuple(map(int, number.split("."))) > FLOOR[kind]:
                raise PackagingError(f"{name} needs {need}, newer than the baseline",
                                     f"see scripts/bundling/{'baseline.py' if kind not in FLOOR else 'old_glibc.c'}")
        for folder in run_path(file):
            if folder not in beside and not inside(root, file, folder):
                raise PackagingError(f"{name} looks for libraries in {folder or 'the working folder'}")
        for needed in dynamic(file, "NEEDED"):
            if not SKIPPED.match(needed) and not (root / "lib" / needed).exists() and not (beside and TORCHS.match(needed)):
                raise PackagingError(f"{name} needs {needed}, which is not in the wheel",
                            "make it on Debian 12, whose packages have a static archive of each library")


def inside(root, file, word):
    if not word.startswith("$ORIGIN"):
        return False
    place = pathlib.Path(word.replace("$ORIGIN", str(file.parent))).resolve()
    return place.is_relative_to(root.resolve())
