"""Links what the build compiled once more, against the baseline and with the archives of the small libraries inside.

What a link hides cannot clash with the library of the same name that a site's MPI brings.
"""

import pathlib
import re
import shlex

from . import baseline, yaml_cpp
from .errors import PackagingError, output

# what old_glibc.c has in the place of these
OWN = [("stdout", "lockstep_stdout"), ("stderr", "lockstep_stderr"),
       ("program_invocation_name", "lockstep_invocation_name")]
HERE = pathlib.Path(__file__).resolve().parent


def link_words(build, target):
    """The words of the build's own command for a target."""
    commands = output("ninja", "-C", build, "-t", "commands", target).splitlines()
    lines = [line for line in commands if f" -o {target} " in line]
    if not lines:
        raise PackagingError(f"{build} has no rule for {target}", "run cmake --preset release")
    return shlex.split(lines[-1].replace("\\$", "$"))


def archive_of(library):
    """libyaml-cpp.so.0.7.0 -> the libyaml-cpp.a beside it; None for what has none."""
    library = pathlib.Path(library)
    archive = library.with_name(re.sub(r"\.so[.0-9]*$", ".a", library.name))
    return archive if archive.exists() else None


def gcc_file(name):
    return output("gcc", f"-print-file-name={name}").strip()


class Linker:
    """Links targets of a build folder again. `archives` are the small libraries that went into them. `beside`:
    run paths to libraries that lie outside of it."""

    def __init__(self, build, cache_dir, scratch, beside=()):
        self.build, self.cache_dir, self.scratch, self.beside = build, cache_dir, scratch, beside
        self.base = baseline.prepare(cache_dir)
        self.archives = set()
        self.compat = scratch / "old_glibc.o"
        output("gcc", "-O2", "-fPIC", "-fvisibility=hidden", "-c", HERE / "old_glibc.c", "-o", self.compat)

    def hidden(self, archive):
        """A copy of an archive that can be a part of a shared library; hwloc's without its plug-ins."""
        self.archives.add(archive)
        if archive.name == "libyaml-cpp.a":
            return yaml_cpp.archive(archive, self.cache_dir)
        own = self.scratch / archive.name
        names = [*OWN, ("dlopen", "lockstep_no_plugin")] if archive.name == "libhwloc.a" else OWN
        output("objcopy", *[f"--redefine-sym={name}={new}" for name, new in names], archive, own)
        return own

    def libraries(self, words, made):
        """The libraries of a command: those made here, archives, and what stays shared (libtorch)."""
        ours, archives, shared = [], [], []
        for word in words:
            if not re.search(r"\.so[.0-9]*$", word) or word.startswith("-"):
                continue
            path = self.build / word
            if path.resolve() in made:
                ours.append(made[path.resolve()])
            elif archive_of(path):
                archives.append(self.hidden(archive_of(path)))
            else:
                shared.append(path)
        return [*ours, *shared], list(dict.fromkeys(archives))

    def link(self, target, out, made):
        words = link_words(self.build, target)
        is_library = "-shared" in words
        objects = [self.build / word for word in words if word.endswith(".o")]
        shared, archives = self.libraries(words[:words.index("-o")] + words[words.index("-o") + 2:], made)
        if unmade := [name for name in objects if not name.exists()]:
            raise PackagingError(f"{unmade[0]} is not built", "run cmake --build --preset release")
        kind = ["-shared", *[word for word in words if word.startswith("-Wl,-soname")]]
        if "-Wl,-soname,liblockstep.so" in " ".join(words):  # what a plug-in lacks is the MPI's
            kind.append("-Wl,-z,defs")
        if not is_library:
            kind = ["-pie", "-rdynamic", self.base / "Scrt1.o"]
        out.parent.mkdir(parents=True, exist_ok=True)
        output("gcc", "-nostdlib", "-s", "-o", out, *kind, self.base / "crti.o", gcc_file("crtbeginS.o"),
               "-Wl,--allow-shlib-undefined,--exclude-libs,ALL,--build-id,--as-needed,--disable-new-dtags",
               f"-Wl,-rpath,{':'.join(['$ORIGIN' if is_library else '$ORIGIN/../lib', *self.beside])}",
               *objects, self.compat, *shared, "-Wl,--start-group", *archives, "-Wl,--end-group", *self.runtime())

    def program(self, source, out, *words):
        """A program of one C file that needs nothing but the C library."""
        made = self.scratch / "program.o"
        output("gcc", "-O2", "-fPIC", "-Wall", "-Werror", *words, "-c", source, "-o", made)
        output("gcc", "-nostdlib", "-s", "-o", out, "-pie", self.base / "Scrt1.o", self.base / "crti.o", gcc_file("crtbeginS.o"),
               "-Wl,--build-id,--as-needed", made, *self.runtime())

    def runtime(self):
        """The baseline's libraries, behind everything else."""
        return [
            # what gcc 8's libstdc++ has not comes from this compiler's archive, as in Red Hat's toolsets
            self.base / "libstdc++.so.6", gcc_file("libstdc++.a"), "-lgcc", self.base / "libgcc_s.so.1",
            *[self.base / name for name in baseline.SHARED if name.startswith(("libm.", "libp", "libd", "libr"))],
            self.base / "libc.so.6", self.base / "libc_nonshared.a", self.base / "libpthread_nonshared.a", self.base / "ld-linux-x86-64.so.2",
            gcc_file("crtendS.o"), self.base / "crtn.o"]
