"""The code in the docs is code: C++ compiles against an install, YAML is a config, commands and keys exist."""

import re

import pytest

from conftest import SOURCE
from course_kit import commands_of
from docs_kit import BLOCKS, blocks
from examples_kit import build_against

pytestmark = pytest.mark.about("docs", "examples")


def stands_alone(block):
    """Does it declare things, as a program or a task's library does? Else it is a piece of a function."""
    first = next(line for line in block.text.splitlines() if line.strip() and not line.startswith(("#", "//")))
    return "int main(" in block.text or re.search(r"^LOCKSTEP_\w+\(", block.text, re.M) or \
        re.match(r"(template|class|struct|namespace)\b|void \w+\(.*\) \{$", first)


def as_source(block):
    """(its includes, the rest in a scope of its own); the compiler names the page and the line."""
    includes = re.findall(r"^#include .*$", block.text, re.M)
    body = re.sub(r"^#include .*$", "", block.text, flags=re.M)
    name = re.sub(r"\W", "_", str(block))
    opening = f"namespace {name} {{ using namespace given;"
    if not stands_alone(block):
        opening += " void fragment() {"
        body += "}\n"
    return includes, f'{opening}\n#line {block.line} "{block.page}"\n{body}}}\n'


def source(found):
    """One for all, as libtorch's headers cost most of it."""
    includes, texts = [], []
    for block in found:
        wanted, text = as_source(block)
        includes += wanted
        texts.append(text)
    return "\n".join(["#include <given.h>", *dict.fromkeys(includes), *texts])


@pytest.mark.full  # half a minute of a core
def test_the_cpp_of_each_page_compiles_against_an_install_with_its_own_includes(installed, build_dir, tmp_path):
    pages = sorted({block.page for block in blocks("cpp")})
    assert len(pages) > 5
    for number, page in enumerate(pages):
        text = source([block for block in blocks("cpp") if block.page == page])
        (tmp_path / f"page_{number}.cpp").write_text(text)
    built = build_against(installed, build_dir, SOURCE / "tests/snippets", tmp_path / "build", f"-DSNIPPETS={tmp_path}",
                          flags="", check=False)
    assert built.returncode == 0, built.output


def test_the_yaml_of_the_docs_is_a_config(run, lockstep, tmp_path):
    wrong = []
    for block in blocks("yaml"):
        (tmp_path / "c.yaml").write_text(block.text)
        result = run(lockstep, "config", tmp_path / "c.yaml", env={"HOME": str(tmp_path)})
        if result.returncode != 0 or "warning" in result.stderr:
            wrong.append(f"{block}: {result.stderr}")
    assert not wrong


def test_the_commands_and_keys_that_the_docs_type_exist(run, lockstep):
    commands = set(re.findall(r"^  (\w+) +\w", run(lockstep, "--help", check=True).stdout, re.M))
    keys, section = set(), ""
    for line in run(lockstep, "config", "configs/mnist.yaml", check=True).stdout.splitlines():
        if name := re.match(r"( *)([\w]+):", line):
            section = section if name[1] else name[2]
            keys.add(f"{section}.{name[2]}")
    wrong = []
    for block in BLOCKS:
        if block.language not in ("", "sh", "bash", "console"):
            continue
        runs = block.page.startswith("tutorials/") and block.language == "console" and "not run" not in block.said
        typed = "\n".join(command.text for command in commands_of(block)) if runs else block.text
        for word in re.findall(r"(?:^|\$ |-n \d |bin/)lockstep (\w+)", typed, re.M):
            wrong += [f"{block}: lockstep {word}"] if word not in commands else []
        for key in re.findall(r"--set '?(\w+\.\w+)=", typed):
            known = key in keys or key.startswith("task.options") or f"unknown key {key}" in block.text
            wrong += [] if known else [f"{block}: --set {key}"]
    assert not wrong
