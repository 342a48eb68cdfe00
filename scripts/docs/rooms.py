"""The rooms of src/lockstep as src/CMakeLists.txt declares them, and the files in each."""

import dataclasses
import pathlib
import re

import headers

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src/lockstep"


@dataclasses.dataclass
class Room:
    name: str
    uses: list
    public: list  # headers, without .h


def declared():
    """{name: Room} as lockstep_room() declares them, lowest first."""
    rooms = {}
    text = re.sub(r"#.*", "", (ROOT / "src/CMakeLists.txt").read_text())
    for call in re.findall(r"lockstep_room\(([^)]*)\)", text):
        lists, words = {"": []}, lists_of(call)
        for key, word in words:
            lists.setdefault(key, []).append(word)
        name = lists[""][0]
        rooms[name] = Room(name, lists.get("USES", []), lists.get("PUBLIC", []))
    return rooms


def lists_of(call):
    key = ""
    for word in call.split():
        if word in ("USES", "LINKS", "PUBLIC"):
            key = word
        elif word not in ("TENSOR", "GROUP"):
            yield key, word


def reached(rooms, name):
    """The room and all below it."""
    return {name}.union(*(reached(rooms, used) for used in rooms[name].uses))


def included_by(folder):
    """The declared rooms whose headers a folder that is no declared room (cli, cuda) includes, but for those that stand
    below another of them."""
    rooms = declared()
    text = "".join(file.read_text() for file in (SOURCES / folder).iterdir() if file.suffix in (".h", ".cpp"))
    named = set(re.findall(r'#include "lockstep/([\w/]+)/\w+\.h"', text)) & set(rooms)
    below = set().union(*(reached(rooms, name) - {name} for name in named))
    return sorted(named - below)


def folders():
    """The folders that hold sources, as rooms are named: comm, comm/mpi."""
    return sorted({str(file.parent.relative_to(SOURCES)) for file in SOURCES.rglob("*.cpp")} |
                  {str(file.parent.relative_to(SOURCES)) for file in SOURCES.rglob("*.h")
                   if "gloo_headers" not in file.parts} - {"."})


def says(folder, stem):
    """What a file promises: the comment that opens its header, or the source that has none."""
    for suffix in (".h", ".cpp"):
        file = SOURCES / folder / (stem + suffix)
        if file.exists() and (promise := headers.promise(file.read_text())):
            return headers.first_sentence(promise)
    return ""


def files(folder):
    """[(stem, suffixes, what it promises)] of a folder."""
    stems = {}
    for file in sorted((SOURCES / folder).iterdir()):
        if file.suffix in (".h", ".cpp"):
            stems.setdefault(file.stem, []).append(file.suffix)
    return [(stem, suffixes, says(folder, stem)) for stem, suffixes in sorted(stems.items())]
