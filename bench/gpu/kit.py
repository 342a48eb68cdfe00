"""Tests everything in lockstep that needs a GPU, on a machine that has a GPU and PyTorch.

    ./run                       all parts, in under 10 minutes
    ./run --list                which parts there are
    ./run --only parity,speed   these
    ./run --cpu                 a rehearsal of the kit on the CPU, of those parts that one can run

Leaves report.md, report.json and logs.txt in one folder, and keeps them up to date while it runs. Exit status: 0 all
parts passed or had nothing to run on; 1 a part failed, hung, or was not reached; 2 the kit cannot run here; 128 + N ended by
signal N. PYTHON names the Python that has PyTorch.
"""

import sys

if sys.version_info < (3, 10):
    sys.stderr.write("error: the kit needs Python 3.10 or later, and {} is {}.{}\n  hint: name a later one that has PyTorch: "
                     "PYTHON=/where/it/is/python3\n".format(sys.executable, *sys.version_info[:2]))
    sys.exit(2)

import argparse  # noqa: E402
import os  # noqa: E402
import pathlib  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import traceback  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("bench/gpu", "bench/comparison", "scripts")]
try:
    import ended
    import launch
    import machine
    import parts
    import place
    import running
    import surroundings
    from report import Report
except ImportError as error:
    sys.stderr.write(f"error: this is not a complete kit: {error}\n  hint: unpack it again\n")
    sys.exit(2)

# What the machine preloads is the machine's; a comparison of speeds would take it away
launch.FOREIGN = tuple(name for name in launch.FOREIGN if name != "LD_PRELOAD")
SECONDS = 560
LEAST = 5  # seconds: a part that has less is not begun


def read_options():
    parser = argparse.ArgumentParser(prog="run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="the parts, and how long each may take")
    parser.add_argument("--only", metavar="LIST", help="parts, as in nccl,parity")
    parser.add_argument("--out", metavar="DIR", type=pathlib.Path, default="gpu_report",
                        help="where the report goes (default gpu_report, in this folder)")
    parser.add_argument("--seconds", type=place.positive, default=SECONDS, help=f"for all parts together (default {SECONDS})")
    parser.add_argument("--patience", type=place.positive, default=1, metavar="N", help="for a slow or busy machine: N times the time of each part")
    parser.add_argument("--cpu", action="store_true", help="run the parts that can run on the CPU")
    return parser.parse_args()


def chosen(options):
    names = [row.name for row in parts.ROWS]
    wanted = options.only.split(",") if options.only else names
    for name in wanted:
        if name not in names:
            raise place.Refused(f"--only {options.only}: there is no part {name!r}", f"name parts among {', '.join(names)}")
    return [row for row in parts.ROWS if row.name in wanted]


def facts_of(here):
    fields = machine.cpu_fields()
    nvidia = machine.first_line("nvidia-smi", "--query-gpu=driver_version,memory.total", "--format=csv,noheader")
    return {"GPUs": ", ".join(here.gpus) or "none", "driver, memory": nvidia or "no nvidia-smi", "CUDA of PyTorch": here.cuda,
            "NCCL": ".".join(map(str, here.nccl)) or "none", "PyTorch": here.torch, "Python": f"{sys.version.split()[0]}, {sys.executable}",
            "lockstep": " ".join(here.version.split()), "CPU": f"{fields.get('model name', '?')}, {machine.cores()} cores",
            "system": f"{os.uname().sysname} {os.uname().release}, {machine.glibc()}", "rehearsal": "on the CPU" if here.device == "cpu" else "no",
            "compute-sanitizer": here.sanitizer or "none"}


def attempt(row, part, found):
    """(state, why)"""
    try:
        row.work(part, found)
        return "ok", ""
    except launch.TooSlow as slow:
        return "hung", str(slow)
    except (launch.Failed, running.Wrong) as wrong:
        return "failed", str(wrong)
    except Exception as error:  # the other parts go on, whatever a program has left half written
        part.log.write(traceback.format_exc().encode())
        return "failed", f"{type(error).__name__}: {error}"


def run_part(row, here, report, log, limit, patience):
    if why := parts.missing(row, here):
        return report.tell(row.name, state="no GPU" if why == "no GPU" else "not here", why="" if why == "no GPU" else why)
    if limit < LEAST:
        return report.tell(row.name, state="not begun", why="the time was up")
    begin, found, state, why = time.monotonic(), {}, "stopped", "by a signal"
    try:
        report.tell(row.name, state="running")
        log.write(f"\n==== {row.name}: {row.what}\n".encode())
        with tempfile.TemporaryDirectory(prefix="lockstep-kit-") as folder:
            state, why = attempt(row, running.Part(here, pathlib.Path(folder), log, min(limit, patience * here.seconds(row.seconds))), found)
    finally:
        report.tell(row.name, state=state, why=why, seconds=time.monotonic() - begin, found=found)
    log.write(f"== {state}{': ' if why else ''}{why}\n".encode())


def run_all(options):
    rows, folder = chosen(options), place.writable(options.out).resolve()
    end = time.monotonic() + options.seconds
    here = surroundings.look_around(options.cpu)
    report = Report(folder, time.strftime("%Y-%m-%dT%H:%M:%S"), facts_of(here), rows)
    report.write()
    with open(folder / "logs.txt", "wb+") as log:
        for row in rows:
            run_part(row, here, report, log, end - time.monotonic(), options.patience)
            print(f"{row.name:<10} {report.states()[rows.index(row)]}", flush=True)
    report.write(whole=True)
    print(f"\n{folder}/report.md, report.json and logs.txt, after {report.record['seconds']:.0f} s")
    return 1 if {"failed", "hung", "not begun"} & set(report.states()) else 0


def main():
    ended.by_signals()
    options = read_options()
    if options.list:
        return print("\n".join(f"{row.name:<10} {row.seconds:>4} s  {row.what}" for row in parts.ROWS))
    try:
        sys.exit(run_all(options))
    except place.Refused as refused:
        what, todo = refused.args
        print(f"error: {what}\n  hint: {todo}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
