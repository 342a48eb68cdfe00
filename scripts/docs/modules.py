"""The modules as src/CMakeLists.txt and course/CMakeLists.txt declare them, and the files in each."""

import dataclasses
import pathlib
import re

import headers

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS = ("src/lockstep", "src/trainer", "src/tools", "course")
LIBRARY = ROOT / "src/lockstep"


@dataclasses.dataclass
class Module:
    name: str
    uses: list
    public: list  # headers, without .h


def declared():
    """{name: Module} as lockstep_module() declares them, lowest first."""
    modules = {}
    text = re.sub(r"#.*", "", "".join((ROOT / top / "CMakeLists.txt").read_text() for top in ("src", "course")))
    for call in re.findall(r"lockstep_module\(([^)]*)\)", text):
        lists, words = {"": []}, lists_of(call)
        for key, word in words:
            lists.setdefault(key, []).append(word)
        name = lists[""][0]
        modules[name] = Module(name, lists.get("USES", []), lists.get("PUBLIC", []))
    return modules


def public_headers():
    names = [(module.name, f"{module.name}/{header}.h") for module in declared().values() for header in module.public]
    return [(module, name, next(file for top in ("src", "course/include") if (file := ROOT / top / "lockstep" / name).exists()))
            for module, name in [*names, ("lesson", "lesson/show.h")]]


def lists_of(call):
    key = ""
    for word in call.split():
        if word in ("USES", "LINKS", "PUBLIC"):
            key = word
        elif word not in ("TENSOR", "GROUP"):
            yield key, word


def reached(modules, name):
    """The module and all below it."""
    return {name}.union(*(reached(modules, used) for used in modules[name].uses))


def folder_of(name):
    """Where a module lies."""
    return next(folder for layer in LAYERS if (folder := ROOT / layer / name).is_dir())


def included_by(name):
    """The topmost declared modules whose headers a folder that is no declared module (cli, cuda) includes."""
    modules = declared()
    text = "".join(file.read_text() for file in folder_of(name).iterdir() if file.suffix in (".h", ".cpp"))
    named = set(re.findall(rf'#include "(?:{"|".join(layer.removeprefix("src/") for layer in LAYERS)})/([\w/]+)/\w+\.h"', text)) & set(modules)
    below = set().union(*(reached(modules, name) - {name} for name in named))
    return sorted(named - below)


def folders():
    """The folders that hold sources, as modules are named: comm, comm/mpi."""
    return sorted({str(file.parent.relative_to(ROOT / layer))
                   for layer in LAYERS for ending in ("cpp", "h") for file in (ROOT / layer).rglob(f"*.{ending}")
                   if not {"gloo_headers", "include"} & set(file.parts)} - {"."})


def says(name, stem):
    """What a file promises: the comment that opens its header, or the source that has none."""
    for suffix in (".h", ".cpp"):
        file = folder_of(name) / (stem + suffix)
        if file.exists() and (promise := headers.promise(file.read_text())):
            return headers.first_sentence(promise)
    return ""


def files(name):
    """[(stem, suffixes, what it promises)] of a folder."""
    stems = {}
    for file in sorted(folder_of(name).iterdir()):
        if file.suffix in (".h", ".cpp"):
            stems.setdefault(file.stem, []).append(file.suffix)
    return [(stem, suffixes, says(name, stem)) for stem, suffixes in sorted(stems.items())]
