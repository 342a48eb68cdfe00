"""The C library that a wheel is linked against: the oldest one it runs with, from the packages of an old release."""

import hashlib
import http.client
import os
import shutil
import urllib.request

from .cached import once
from .errors import PackagingError, output

# libtorch's own wheel is made for glibc 2.28 and gcc 8's libstdc++ (RHEL 8): ours must need no more than it does.
FLOOR = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11), "GCC": (8, 0, 0), "GOMP": (5, 0), "OMP": (4, 5)}

MIRROR = "http://archive.ubuntu.com/ubuntu"
# Ubuntu 18.04's: glibc 2.27, libstdc++ of gcc 8
PACKAGES = {
    "pool/main/g/glibc/libc6_2.27-3ubuntu1.6_amd64.deb":
        "5b813d4512491cd8fb30b2eb9192349ee75ffe3c9f21ae136cc7b2429f70c3b2",
    "pool/main/g/glibc/libc6-dev_2.27-3ubuntu1.6_amd64.deb":
        "96ae7d2cf38f0547ca3cccb3344c8802fdf5bcd71c4b6d9aed09558ac8cc87db",
    "pool/main/g/gcc-8/libstdc++6_8.4.0-1ubuntu1~18.04_amd64.deb":
        "4dbd1ffa20011329608f584ff329a10507cfa78c3f76fa34e6f479f9680b64f4",
    "pool/main/g/gcc-8/libgcc1_8.4.0-1ubuntu1~18.04_amd64.deb":
        "116dadf4ceaba7150eb46a6598dd3defa62b1b2a6578fb494f4c932878634994",
}
# What a link takes of them, under the names that a program asks for
SHARED = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2",
          "libstdc++.so.6", "libgcc_s.so.1")
PLAIN = ("libc_nonshared.a", "libpthread_nonshared.a", "Scrt1.o", "crti.o", "crtn.o")


def fetch(url, digest, folder):
    """The path of a file, which is kept. A file that was put there by hand is checked, too."""
    def download(to):
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                to.write_bytes(answer.read())
        except (OSError, http.client.HTTPException) as error:
            raise PackagingError(f"cannot fetch {url}: {error or type(error).__name__}", f"put that file into {folder}")

    file = once(folder, url.rpartition("/")[2], download)
    if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
        file.unlink()
        raise PackagingError(f"{file} does not have the SHA-256 {digest}", f"it is removed: put that of {url} there, or try again")
    return file


def unpack(packages, to):
    """Writes SHARED and PLAIN of some packages into a new folder."""
    to.mkdir()
    root = to.parent / "root"
    for package in packages:
        output("dpkg-deb", "-x", package, root)
    for name in SHARED + PLAIN:
        file = next((file for file in sorted(root.rglob(name)) if not file.is_dir()), None)
        if not file:
            raise PackagingError(f"the baseline's packages lack {name}")
        while file.is_symlink():
            target = os.readlink(file)
            file = root / target.lstrip("/") if target.startswith("/") else file.parent / target
        shutil.copyfile(file, to / name)


def prepare(folder):
    """A folder with what a link takes of the baseline: another one where the packages are others."""
    list_of_them = repr((PACKAGES, SHARED, PLAIN)).encode()
    return once(folder, f"libraries-{hashlib.sha256(list_of_them).hexdigest()[:12]}", lambda to: unpack(
        [fetch(f"{MIRROR}/{path}", digest, folder) for path, digest in PACKAGES.items()], to))
