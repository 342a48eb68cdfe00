"""licences/: the terms of all that a bundle holds, each library's beside its name."""

import pathlib
import re
import shutil

from .said import Wrong, output

# headers and start-up files that are compiled in without a library of their own
COMPILED_IN = ("nlohmann-json3-dev", "libstdc++-12-dev", "libc6-dev")


def debian(package, to):
    """A Debian package's copyright file, and the licences that it refers to."""
    text = pathlib.Path(f"/usr/share/doc/{package}/copyright")
    if not text.exists():
        raise Wrong(f"{text} is not here", "a bundle is made on Debian 12, with its documentation folders")
    shutil.copyfile(text, to / f"{package}.txt")
    for name in set(re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", text.read_text(errors="replace"))):
        if pathlib.Path(f"/usr/share/common-licenses/{name}").exists():
            shutil.copyfile(f"/usr/share/common-licenses/{name}", to / f"{name}.txt")


def in_one(place):
    """A file's bytes, or those of all files below a folder, each behind its name."""
    if place.is_file():
        yield place.read_bytes()
        return
    for text in sorted(path for path in place.rglob("*") if path.is_file()):
        yield f"\n=== {text.relative_to(place)}\n\n".encode() + text.read_bytes()


def wheel_of(file):
    """The .dist-info folder of the wheel that brought a file, by its RECORD."""
    packages = next(folder for folder in file.parents if list(folder.glob("torch-*.dist-info")))
    name = file.relative_to(packages).as_posix()
    for record in sorted(packages.glob("*.dist-info/RECORD")):
        if any(line.startswith(f"{name},") for line in record.read_text().splitlines()):
            return record.parent
    raise Wrong(f"no wheel says that it brought {file}", "take libtorch's wheel: scripts/bootstrap")


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
    for name, source in sorted(tree.libraries.items()):
        wheel = wheel_of(source)
        for text in sorted((wheel / "licenses").iterdir()):
            kept = f"{wheel.name.partition('-')[0]}-{text.name.removesuffix('.txt')}.txt"
            (to / kept).write_bytes(b"".join(in_one(text)))
            rows.append((name, kept))
    # libgomp is GCC's, whichever wheel brought it
    rows += [(name, "libstdc++-12-dev.txt") for name in sorted(tree.libraries) if name.startswith("libgomp")]
    (to / "README").write_text("".join(f"{name:32}{text}\n" for name, text in rows))
