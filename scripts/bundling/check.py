"""Checks the files of a wheel: no run path leads elsewhere, no MPI is inside, nothing is newer than the baseline."""

import pathlib
import re

from .baseline import FLOOR
from .errors import PackagingError, output
from .binaries import SKIPPED, dynamic


TORCHS = re.compile(r"lib(torch|c10|gomp|cudart|cupti|nccl)")


def programs(root):
    """Every ELF file in a folder."""
    for file in sorted(root.rglob("*")):
        if file.is_file() and not file.is_symlink():
            with open(file, "rb") as opened:
                if opened.read(4) == b"\x7fELF":
                    yield file


def version_needs(file):
    return output("readelf", "-VW", file).partition("Version needs section")[2]


def versions(file):
    """(GLIBC, (2, 28)), ... that a file asks of the libraries that it needs."""
    return {(name, tuple(map(int, number.split("."))))
            for name, number in re.findall(r"Name: ([A-Z]+)_([0-9.]+)\s", version_needs(file))}


def newest(root):
    """The newest version of each set of symbols that any file needs."""
    found = {}
    for file in programs(root):
        for name, number in versions(file):
            found[name] = max(found.get(name, (0,)), number)
    return found


def unnumbered(file):
    """GLIBC_PRIVATE, GLIBC_ABI_DT_RELR, ...: of one C library only, or only of those after 2.35."""
    return sorted(re.findall(r"Name: (GLIBC_[A-Z]\w*)", version_needs(file)))


def check(root, beside=()):
    """`beside`: run paths that may lead out of it, to what comes with torch's wheel."""
    for file in programs(root):
        name = file.relative_to(root)
        for need in unnumbered(file):
            raise PackagingError(f"{name} needs {need}, which other C libraries may lack",
                        "link it without -z pack-relative-relocs and without glibc's private symbols")
        for kind, number in versions(file):
            if kind not in FLOOR or number > FLOOR[kind]:
                raise PackagingError(f"{name} needs {kind}_{'.'.join(map(str, number))}, newer than the baseline",
                            f"see scripts/bundling/{'baseline.py' if kind not in FLOOR else 'old_glibc.c'}")
        for path in [*dynamic(file, "RPATH"), *dynamic(file, "RUNPATH")]:
            outside = [word for word in path.split(":") if word not in beside and not inside(root, file, word)]
            if outside:
                raise PackagingError(f"{name} looks for libraries in {outside[0] or 'the working folder'}")
        for needed in dynamic(file, "NEEDED"):
            if not SKIPPED.match(needed) and not (root / "lib" / needed).exists() and not (beside and TORCHS.match(needed)):
                raise PackagingError(f"{name} needs {needed}, which is not in the wheel",
                            "make it on Debian 12, whose packages have a static archive of each library")


def inside(root, file, word):
    if not word.startswith("$ORIGIN"):
        return False
    place = pathlib.Path(word.replace("$ORIGIN", str(file.parent))).resolve()
    return place.is_relative_to(root.resolve())
