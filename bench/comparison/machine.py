"""What this machine is, what it can do, and how busy others keep it."""

import os
import pathlib
import platform
import re
import shutil
import subprocess

BF16 = ("avx512_bf16", "amx_bf16", "avx_ne_convert")
TICK = os.sysconf("SC_CLK_TCK")


def cores():
    return len(os.sched_getaffinity(0))


def cpu_fields():
    """The first processor of /proc/cpuinfo."""
    first = pathlib.Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}


def physical_cores():
    """Of those that we may use: hyper-threads of one core share it."""
    found = set()
    for cpu in os.sched_getaffinity(0):
        folder = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            found.add(((folder / "physical_package_id").read_text(), (folder / "core_id").read_text()))
        except OSError:
            found.add(cpu)
    return len(found)


def bf16_instructions():
    flags = cpu_fields().get("flags", "").split()
    return [flag for flag in BF16 if flag in flags]


def gpus():
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
    return listed.stdout.splitlines() if listed.returncode == 0 else []


def first_line(*command):
    try:
        return (subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.splitlines() or [""])[0]
    except OSError:
        return ""


def glibc():
    return " ".join(platform.libc_ver())


def facts(program, python, mpirun, root):
    """Name and text of what a figure depends on."""
    fields = cpu_fields()
    torch = first_line(python, "-c", "import importlib.metadata as m; print('torch', m.version('torch'), "
                                     "'torchvision', m.version('torchvision'))")
    commit = first_line("git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12")
    memory = re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())
    return {
        "cpu": f"{fields.get('model name', platform.processor())} (family {fields.get('cpu family', '?')}, model "
               f"{fields.get('model', '?')}), {cores()} logical and {physical_cores()} physical cores",
        "bf16 instructions": ", ".join(bf16_instructions()) or "none",
        "gpus": ", ".join(gpus()) or "none",
        "memory": f"{int(memory[1]) / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, {glibc()}",
        "lockstep": f"{' '.join(first_line(program, '--version').split())}, commit {commit or 'unknown'}",
        "peers": f"Python {first_line(python, '--version').rpartition(' ')[2]}, {torch}",
        "mpi": first_line(mpirun, "--version"),
    }


def ticks():
    """Of all processors together since the machine started, in seconds: (all, idle, stolen)."""
    fields = [int(word) for word in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(fields) / TICK, (fields[3] + fields[4]) / TICK, fields[7] / TICK


def shares(before, after, ours):
    """Of the time that passed between two ticks(): what others had, and what was stolen; `ours` is in seconds."""
    passed, idle, stolen = (b - a for a, b in zip(before, after))
    if passed <= 0:
        return 0.0, 0.0
    return max(0.0, passed - idle - stolen - ours) / passed, stolen / passed


def load():
    return os.getloadavg()[0]
