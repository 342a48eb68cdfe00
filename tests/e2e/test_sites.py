"""`lockstep site`: files by name and by path, one's own before lockstep's, and login nodes that answer badly."""

import pytest
from conftest import SOURCE
from process_kit import executable

pytestmark = pytest.mark.about("cluster")


@pytest.fixture
def commands(tmp_path):
    """commands(NAME=shell text) -> a PATH with these programs and little else."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(**programs):
        for name, text in programs.items():
            executable(folder / name, f"#!/bin/sh\n{text}\n")
        return {"PATH": str(folder)}
    return make


def test_ones_own_sites_come_before_lockstep_s(run, lockstep, tmp_path):
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites/gadi.yaml").write_text("about: mine\nscheduler: slurm\n")
    (tmp_path / "sites/bad.yaml").write_text("scheduler: slurm\nqueu: x\n")
    listed = run(lockstep, "site", "list", cwd=tmp_path, env={"HOME": str(tmp_path)}, check=True).stdout
    assert "gadi         slurm  mine (sites/gadi.yaml)\n" in listed and "perlmutter" in listed
    assert "bad" in listed and "unknown key queu (sites/bad.yaml:2:1)" in listed
    shown = run(lockstep, "site", "show", "gadi", cwd=tmp_path, check=True).stdout
    assert shown == "# sites/gadi.yaml\nabout: mine\nscheduler: slurm\n"


def test_a_site_that_is_not_there(run, lockstep, tmp_path):
    for name, said in (("gadu", "did you mean gadi?"), ("../../etc/passwd", "cannot be read")):
        done = run(lockstep, "site", "show", name, cwd=tmp_path)
        assert done.returncode == 2 and said in done.stderr, done.stderr


def test_what_a_login_node_prints_stays_a_comment_or_a_word(run, lockstep, commands, tmp_path):
    found = run(lockstep, "site", "detect", check=True, env=commands(
        sinfo=r"""printf 'ok*|1|4|1|4|(null)|1:00:00|1-2\n$(touch pwned)|1|4|1|4|(null)|infinite|1\nevil: {|1|4|1|4|x|1|1\n'""",
        scontrol=r"""printf 'MpiDefault = pmix\033[31m\n'""")).stdout
    (tmp_path / "s.yaml").write_text(found)
    assert "\x1b" not in found and "  ok: {gpus_per_node: 0, cores_per_node: 4, max_nodes: 2, max_time: 1h}\n" in found
    assert [line for line in found.splitlines() if "touch pwned" in line and not line.startswith("# ")] == []
    assert run(lockstep, "site", "show", tmp_path / "s.yaml").returncode == 0


def test_the_page_has_every_key_and_a_site_file_that_is_one(run, lockstep, tmp_path):
    page = (SOURCE / "docs/how-to/sites.md").read_text()
    assert page.split("<!-- generated: site keys -->\n")[1].split("<!-- end -->")[0] == run(lockstep, "site", "keys", check=True).stdout
    (tmp_path / "ours.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    (tmp_path / "c.yaml").write_text("run: {name: x}\n")
    done = run(lockstep, "render", "slurm", "c.yaml", "--site", "ours.yaml", "--account", "a", cwd=tmp_path, check=True)
    assert "#SBATCH --constraint=a100\n" in done.stdout and "module load openmpi/5.0 || exit 2\n" in done.stdout
