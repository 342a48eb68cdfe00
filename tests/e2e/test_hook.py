"""scripts/hooks/pre-commit: what is staged is checked in seconds, and nothing else."""

import shutil

import pytest

from conftest import SOURCE

pytestmark = pytest.mark.about("scripts")

UGLY = "int  main( ){return 0;}\n"
NEAT = "int main() {\n  return 0;\n}\n"


@pytest.fixture
def repository(run, tmp_path):
    """A repository that has the hook enabled, and a function that runs git in it."""
    for name in (".clang-format", "scripts/common.sh", "scripts/hooks/pre-commit"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / name, tmp_path / name)

    def git(*args, **how):
        return run("git", "-c", "user.name=test", "-c", "user.email=test@localhost", *args, cwd=tmp_path, **how)
    git("init", "-q", check=True)
    git("config", "core.hooksPath", "scripts/hooks", check=True)
    git("add", ".", check=True)
    git("commit", "-q", "-m", "Begin", check=True)
    return tmp_path, git


def commit(repository, name, text):
    folder, git = repository
    (folder / name).write_text(text)
    git("add", name, check=True)
    return git("commit", "-q", "-m", "Try")


@pytest.mark.skipif(not shutil.which("clang-format"), reason="clang-format is not installed")
def test_a_source_that_is_staged_unformatted_is_refused(repository):
    folder, git = repository
    result = commit(repository, "a b.cpp", UGLY)
    assert result.returncode == 1 and "a b.cpp:1" in result.output
    (folder / "a b.cpp").write_text(NEAT)
    git("add", "a b.cpp", check=True)
    (folder / "a b.cpp").write_text(UGLY)  # what is staged counts, not what lies there
    result = git("commit", "-q", "-m", "Try")
    assert result.returncode == 0, result.output


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_a_script_with_a_flaw_is_refused(repository):
    result = commit(repository, "a.sh", "#!/bin/bash\nrm -rf $1\n")
    assert result.returncode == 1 and "SC2086" in result.output
    result = commit(repository, "a.sh", '#!/bin/bash\nrm -rf "$1"\n')
    assert result.returncode == 0, result.output
