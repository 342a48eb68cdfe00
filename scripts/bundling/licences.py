"""licences/: the license of each library in a wheel, beside its name."""

import pathlib
import re
import shutil

from .errors import PackagingError, output

# headers and start-up files that are compiled in without a library of their own
COMPILED_IN = ("nlohmann-json3-dev", "libstdc++-12-dev", "libc6-dev")


def debian(package, to):
    """A Debian package's copyright file, and the licenses that it refers to."""
    text = pathlib.Path(f"/usr/share/doc/{package}/copyright")
    if not text.exists():
        raise PackagingError(f"{text} is missing", "make the wheel on Debian 12, with its documentation folders")
    shutil.copyfile(text, to / f"{package}.txt")
    for name in set(re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", text.read_text(errors="replace"))):
        if pathlib.Path(f"/usr/share/common-licenses/{name}").exists():
            shutil.copyfile(f"/usr/share/common-licenses/{name}", to / f"{name}.txt")


def write(tree, root):
    to = tree.root / "licences"
    to.mkdir()
    rows = [("lockstep", "LICENSE.txt")]
    shutil.copyfile(root / "LICENSE", to / "LICENSE.txt")
    for archive in sorted(tree.archives):
        package = output("dpkg-query", "-S", archive).partition(":")[0]
        debian(package, to)
        rows.append((archive.name, f"{package}.txt"))
    for package in COMPILED_IN:
        debian(package, to)
        rows.append((package, f"{package}.txt"))
    (to / "README").write_text("".join(f"{name:32}{text}\n" for name, text in rows))
