"""Writes the generated parts of the docs: docs/reference/api.md, docs/track-record.md, the exercises, and the tables in
docs/architecture.md and docs/reference/config.md.

    python3 scripts/docs            writes them
    python3 scripts/docs --check    lists outdated parts and missing comments; exits with 1 if there are any
"""

import re
import sys

import chapters
import conflicts
import exercises
import headers
import modules
import record

DOCS = modules.ROOT / "docs"
REFERENCE = DOCS / "reference"
API_HEAD = """# The API, name by name

`python3 scripts/docs` generates this page from the `///` comments in the public headers. All names are in namespace
`lockstep`. Include a header as `<lockstep/MODULE/NAME.h>`; `<lockstep/lockstep.h>` includes those marked ●.
A name that is not listed here is internal and may change at any time ([versions](versions.md)). Overview:
[ddp.md](ddp.md), [optimizers.md](optimizers.md), [checkpoints.md](checkpoints.md), [tasks.md](../how-to/tasks.md).
"""


def entry(name, depth):
    """A name and its members as a nested list."""
    says = f": {name.comment}" if name.comment else ""
    lines = ["  " * depth + f"- `{name.text}`{says}"]
    for member in name.members:
        if member.comment or not headers.quiet(name, member):
            lines += entry(member, depth + 1)
    return lines


def api():
    in_one = set(re.findall(r'#include "lockstep/([^"]+)"', (modules.LIBRARY / "lockstep.h").read_text()))
    lines = [API_HEAD.rstrip()]
    for module, path, file in modules.public_headers():
        if f"## {module}" not in lines:
            lines += ["", f"## {module}"]
        text = file.read_text()
        lines += ["", f"### {'● ' if path in in_one else ''}`lockstep/{path}`", "", headers.promise(text), ""]
        for name in headers.read(text):
            lines += entry(name, 0)
    return "\n".join(lines) + "\n"


def unsaid():
    """Public names without a comment, as file:line: name."""
    def look(path, owner, names):
        for name in names:
            wanted = name.kind != "value" and (owner is None or not headers.quiet(owner, name))
            if wanted and not name.comment:
                yield f"{path.relative_to(modules.ROOT)}:{name.line}: {name.text}: a `///` line is missing"
            yield from look(path, name, name.members)
    for _, _, file in modules.public_headers():
        yield from look(file, None, headers.read(file.read_text()))


def module_table():
    """The modules of each layer, lowest first, and what each uses."""
    declared = modules.declared()
    others = sorted(set(modules.folders()) - set(declared))
    rows = [(f"`{layer}/{name}`", ", ".join(declared[name].uses if name in declared else modules.included_by(name)))
            for layer in modules.LAYERS for name in [*declared, *others] if (modules.ROOT / layer / name).is_dir()]
    return "\n".join(f"| {' | '.join(row)} |" for row in [("module", "uses"), ("---", "---"), *rows])


def filled(page):
    """A page with its generated blocks as they should be."""
    made = {"modules": module_table, "conflicts": conflicts.table}

    def block(match):
        text = made[match[1]]()
        return f"<!-- generated: {match[1]} -->\n{text}\n<!-- end -->"
    return re.sub(rf"<!-- generated: ({'|'.join(made)}) -->\n.*?<!-- end -->", block, page.read_text(), flags=re.S)


def silent():
    """Files that do not say what they are for."""
    for folder in modules.folders():
        for stem, suffixes, says in modules.files(folder):
            if not says:
                yield f"{modules.folder_of(folder).relative_to(modules.ROOT)}/{stem}{suffixes[-1]}: the opening comment that says what it is for is missing"


def main():
    with_blocks = [DOCS / "architecture.md", REFERENCE / "config.md"]
    pages = {REFERENCE / "api.md": api(), **{page: filled(page) for page in with_blocks if page.exists()},
             DOCS / "track-record.md": record.page(), **exercises.forms()}
    findings = [*unsaid(), *silent(), *chapters.unsaid()]
    for path, text in pages.items():
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            findings.append(f"{path.relative_to(modules.ROOT)}: outdated: run python3 scripts/docs")
    print("\n".join(findings), end="\n" if findings else "")
    sys.exit(bool(findings))


main()
