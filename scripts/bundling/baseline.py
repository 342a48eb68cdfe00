"""The C library that a wheel is linked against: the oldest one it runs with, from the packages of an old release."""

import hashlib
import http.client
import io
import lzma
import os
import tarfile
import urllib.request

from .cached import once
from .errors import PackagingError

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
PLAIN = ("libc_nonshared.a", "Scrt1.o", "crti.o", "crtn.o")


def fetch(url, digest, folder):
    """The bytes of a file, which is kept. A file that was put there by hand is checked, too."""
    def checked(data, name, remedy):
        if hashlib.sha256(data).hexdigest() != digest:
            raise PackagingError(f"{name} does not have the SHA-256 {digest}", remedy)
        return data

    def download(to):
        by_hand = f"put that file into {folder}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise PackagingError(f"cannot fetch {url}: {error or type(error).__name__}", by_hand)
        to.write_bytes(checked(data, url, by_hand))

    file = once(folder, url.rpartition("/")[2], download)
    return checked(file.read_bytes(), file, "remove it, and run this again")


def contents(package):
    """The tar file within a .deb, which is an ar archive."""
    at = 8
    while at < len(package):
        name, size = package[at:at + 16].strip().decode(), int(package[at + 48:at + 58])
        if name.startswith("data.tar.xz"):
            return tarfile.open(fileobj=io.BytesIO(lzma.decompress(package[at + 60:at + 60 + size])))
        at += 60 + size + size % 2
    raise PackagingError("a package lacks data.tar.xz")


def follow(members, name):
    """A member by its last name, through its links."""
    member = next(m for path, m in members.items() if path.rpartition("/")[2] == name and not m.isdir())
    while member.issym():
        folder = member.name.rpartition("/")[0]
        target = member.linkname
        path = target.lstrip("/") if target.startswith("/") else os.path.normpath(f"{folder}/{target}").lstrip("./")
        member = members[path]
    return member


def unpack(packages, to):
    """Writes SHARED and PLAIN of some packages into a new folder."""
    to.mkdir()
    wanted = set(SHARED + PLAIN)
    for package in packages:
        with contents(package) as tar:
            members = {m.name.removeprefix("./"): m for m in tar.getmembers()}
            for name in sorted(wanted & {path.rpartition("/")[2] for path in members}):
                (to / name).write_bytes(tar.extractfile(follow(members, name)).read())
    if lacking := sorted(name for name in wanted if not (to / name).exists()):
        raise PackagingError(f"the baseline's packages lack {lacking[0]}")


def prepare(folder):
    """A folder with what a link takes of the baseline: another one where the packages are others."""
    list_of_them = repr((PACKAGES, SHARED, PLAIN)).encode()
    return once(folder, f"libraries-{hashlib.sha256(list_of_them).hexdigest()[:12]}", lambda to: unpack(
        [fetch(f"{MIRROR}/{path}", digest, folder) for path, digest in PACKAGES.items()], to))
