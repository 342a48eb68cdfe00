"""The files of a GPU kit: programs, tests, data and scripts, and the libraries that PyTorch does not bring."""

import json
import os
import pathlib
import re
import shutil

from .errors import PackagingError, output
from .binaries import SKIPPED, cache, dynamic, patchelf

PROGRAMS = ("lockstep", "comm_peer", "test_comm", "test_parallel", "test_parallel_ranks")
SHARED = ("bench/comparison", "bench/gpu", "configs", "data", "scripts/ended.py")  # of the source tree
GCCS = ("libstdc++.so.6", "libgcc_s.so.1")  # for a machine whose own are older


def unbuilt(build):
    """What has to be built and is not."""
    plugin = build / "lib/liblockstep_cuda.so"
    missing = [name for name in PROGRAMS if not (build / "bin" / name).exists()]
    return missing + ([] if plugin.exists() else ["lockstep_cuda"])


def resolved(file):
    """{soname: path} of all that a file needs, and what those need, as this machine finds it."""
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", file), re.M))


class Kit:
    def __init__(self, build, root, cache_dir):
        self.build, self.root, self.program = build, root, patchelf(cache_dir)

    def place(self, source, folder, run_path="$ORIGIN/../lib"):
        """A program or library, without symbols that nothing looks up, and without a path into this machine."""
        file = self.root / folder / source.name
        file.parent.mkdir(parents=True, exist_ok=True)
        output("strip", "--strip-unneeded", "-o", file, source)
        if dynamic(file, "NEEDED"):
            output(self.program, "--set-rpath", run_path, file)
        return file

    def programs(self):
        for name in PROGRAMS:
            self.place(self.build / "bin" / name, "bin")
        library = (self.build / "lib/liblockstep.so").resolve()
        self.place(library, "lib", "$ORIGIN")
        os.symlink(library.name, self.root / "lib" / dynamic(library, "SONAME")[0])
        self.place(self.build / "lib/liblockstep_cuda.so", "lib", "$ORIGIN")

    def libraries(self):
        """Of this machine: all but the C library, the compiler's, and PyTorch's own."""
        needed = {}
        for file in [*(self.root / "bin").iterdir(), *(self.root / "lib").iterdir()]:
            needed |= resolved(self.build / file.relative_to(self.root))
        torchs = pathlib.Path(needed["libtorch_cpu.so"]).parents[2]  # site-packages
        for name, path in sorted(needed.items()):
            theirs = name.startswith("liblockstep") or pathlib.Path(path).is_relative_to(torchs)
            if name in GCCS:
                (self.root / "lib/gcc").mkdir(exist_ok=True)
                shutil.copy(path, self.root / "lib/gcc" / name)
            elif not theirs and not SKIPPED.match(name):
                self.place(pathlib.Path(path).resolve(), "lib", "$ORIGIN").rename(self.root / "lib" / name)

    def share(self, source):
        skipped = shutil.ignore_patterns("__pycache__", "*.pyc", "results")
        for name in SHARED:
            to = self.root / "share/lockstep" / name
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source / name, to, ignore=skipped) if (source / name).is_dir() else shutil.copy(source / name, to)
        shutil.move(self.root / "share/lockstep/bench/gpu/run", self.root / "run")
        shutil.copy(source / "LICENSE", self.root)

    def contents(self):
        """Writes what the kit was built for; returns the size of its files."""
        built_for = {"torch": cache(self.build, "LOCKSTEP_LIBTORCH_VERSION"), "cuda": self.cuda()}
        (self.root / "contents.json").write_text(json.dumps(built_for, indent=1) + "\n")
        return sum(file.stat().st_size for file in self.root.rglob("*") if file.is_file())

    def cuda(self):
        """libcudart.so.13 -> 13: of one major version all are alike."""
        for needed in dynamic(self.root / "lib/liblockstep_cuda.so", "NEEDED"):
            if found := re.fullmatch(r"libcudart\.so\.(\d+)", needed):
                return found[1]
        raise PackagingError("the CUDA plug-in does not name its CUDA version", "build it again: cmake --preset release")
