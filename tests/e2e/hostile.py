"""Texts that a shell, a scheduler or a terminal would take for more than texts."""

from cluster_kit import SOURCE

# Each would leave a file `pwned` behind, ask the scheduler for more, or arrive as other words, somewhere.
NASTY = [
    "$(touch pwned)", "`touch pwned`", "; touch pwned", "& touch pwned &", "| touch pwned", "&& touch pwned",
    "|| touch pwned", "'; touch pwned; '", '"; touch pwned; "', "\"'`$(touch pwned)`'\"", "${IFS}touch${IFS}pwned",
    "$((a[$(touch pwned)]))", "\ntouch pwned\n", "\n#PBS -l walltime=99:00:00\n", "\n#SBATCH --time=99:00:00\n",
    "#PBS -A thief", "#SBATCH --account=thief", "\n\n#SBATCH --comment=x", "a\r#PBS -V", "\r\n#PBS -V\r\n", "a\\",
    "\\", "\\\\", "\\n", "a\\\nb", "'", '"', "''", '""', "'\\''", "it's", 'say "x"', "a b", " a", "a ", "  ", "\t",
    "a\tb", "\x01\x02", "\x1b[31mred\x1b[0m", "\x7f", "é", "名前", "\U0001f600", "\u202eabc", "\u2028x", "*", "?",
    "[a-z]*", "{a,b}", "~", "~root", "$HOME", "${HOME}", "$PATH", "$0", "$@", "$?", "$$", "!!", "!ls", "%", "%j",
    "%x-%A_%a", "%s%n", "a,b", "a,LD_PRELOAD=x", "ALL,PATH=/tmp", "a=b", "=", "a;b", "(a)", ")", "case x in",
    "<(touch pwned)", ">pwned", ">>pwned", "2>pwned", "<pwned", "&>pwned", "<<EOF\nx\nEOF", "#", "# a comment",
    "a #b", "--", "-", "-x", "--wrap=touch pwned", "-W block=true", "--export=ALL", "-e", "-n", "0", "1e999", "null",
    "true", "a:b", "afterok:1", "EOF", "esac", "done", "fi", "}", "$'\\x41'", "$\"x\"", "a\vb", "\f", "x" * 4000,
    "touch\u00a0pwned", "$(<pwned)", "';touch${IFS}pwned;'", "\n'\ntouch pwned\n'", "%%", "^touch^pwned", "set -e",
    "exit 0", "\\$(touch pwned)", "\\`touch pwned\\`",
]
assert len(set(NASTY)) >= 100


def recording_home(folder):
    """A LOCKSTEP_HOME with a program that notes the words of `lockstep job train`."""
    (folder / "job_scripts").mkdir(parents=True)
    (folder / "job_scripts/sites").symlink_to(SOURCE / "job_scripts/sites")
    (folder / "program").write_text(
        '#!/bin/bash\nshift 2\nprintf "%s\\0" "$@" >"$RECORD"; printf "%s\\0" "$LOCKSTEP_HOME" >"$RECORD.home"\n')
    (folder / "program").chmod(0o755)
    return folder
