"""A folder as a .tar.xz whose bytes depend only on its contents: names in order, one owner, one time."""

import os
import subprocess
import tarfile

from .errors import PackagingError, output


def commit_time(root):
    """When the last change was committed, which is the time of every file."""
    if told := os.environ.get("SOURCE_DATE_EPOCH"):
        if not told.isdecimal():
            raise PackagingError(f"SOURCE_DATE_EPOCH is {told!r}", "set it to a number of seconds, as `date +%s` prints")
        return int(told)
    try:
        return int(output("git", "-c", f"safe.directory={root}", "-C", root, "log", "-1", "--format=%ct"))
    except PackagingError as wrong:
        raise PackagingError(f"cannot read the time of the commit in {root}: {wrong}", "set SOURCE_DATE_EPOCH, in seconds, as `date +%s` prints")


def pack(folder, to, level, time):
    def plain(member):
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = time
        member.mode = 0o755 if member.mode & 0o100 else 0o644
        return member
    try:
        with open(to, "wb") as file, subprocess.Popen(
                ["xz", "-T2", f"-{level}", "--block-size=16MiB"], stdin=subprocess.PIPE, stdout=file) as xz:
            with tarfile.open(fileobj=xz.stdin, mode="w|", format=tarfile.GNU_FORMAT) as tar:
                tar.add(folder, folder.name, filter=plain)  # sorts the names of each folder
            xz.stdin.close()
        if xz.returncode != 0:
            raise PackagingError(f"xz could not write {to}")
    except BrokenPipeError:
        raise PackagingError(f"xz could not write {to}", "check the free space there")
    return to
