"""yaml-cpp from its source: Debian's archive of it cannot be a part of a shared library."""

import concurrent.futures
import os
import re
import tarfile

from . import baseline
from .cached import once
from .errors import PackagingError, output

VERSION = "0.7.0"
SOURCE = "http://deb.debian.org/debian/pool/main/y/yaml-cpp/yaml-cpp_0.7.0+dfsg.orig.tar.xz"
DIGEST = "dc63708605404e0b963e0ca3a9619d1c8270eda2839603e6fa0384e5e51e5312"


def archive(debians, folder):
    """An archive of position independent code, of the version whose headers the build used; made once."""
    names = " ".join(path.name for path in debians.parent.glob("libyaml-cpp.so.*"))
    versions = set(re.findall(r"so\.(\d+\.\d+\.\d+)", names))
    if versions != {VERSION}:
        raise PackagingError(f"a wheel needs yaml-cpp {VERSION}, and {debians.parent} has {', '.join(versions) or 'none'}",
                    "make the wheel on Debian 12")
    return once(folder, f"libyaml-cpp-{DIGEST[:12]}.a", lambda to: build(baseline.fetch(SOURCE, DIGEST, folder), to))


def build(source, to):
    with tarfile.open(source) as tar:
        tar.extractall(to.parent / "yaml-cpp")
    sources = sorted(to.parent.glob("yaml-cpp/*/src/*.cpp"))
    compile_all(sources, sources[0].parents[1] / "include")
    output("ar", "rcsD", to, *[source.with_suffix(".o") for source in sources])


def compile_all(sources, include):
    def compile_one(source):
        output("g++", "-std=c++20", "-O2", "-fPIC", "-DNDEBUG", f"-I{include}", "-c", source, "-o", source.with_suffix(".o"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            list(pool.map(compile_one, sources))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # or the rest would be compiled for nobody
            raise
