#!/usr/bin/env python3
"""What a job script sees of OpenPBS, on the two nodes of lab.py: a stand-in, not a scheduler.

Faithful where a script can tell: directives and -v as qsub reads them, the script spooled and started as a copy,
the environment of a batch job (none of the submitter's), one node-file line a rank, pbs_tmrsh that starts its
argument without a shell in a fresh environment with umask 077, SIGTERM at the walltime and SIGKILL ten seconds
later, qstat -f with its wrapped lines. Jobs start at once: nothing is queued but dependencies.

Called by the name of the command it stands for: qsub, qstat, qdel, qsig, pbs_tmrsh; and as `pbs.py mom FOLDER NODE`.
"""
import array
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

SERVER = "lab"
NODES = ("n1", "n2")
KILL_DELAY = 10
BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def lab():
    return Path(os.environ["PBS_LAB"])


# ---- the job's record -------------------------------------------------------------------------------------


def record_path(folder, job_id):
    return folder / "jobs" / f"{job_id}.json"


def load(folder, job_id):
    if "." not in job_id:
        job_id += "." + SERVER
    try:
        return json.loads(record_path(folder, job_id).read_text())
    except FileNotFoundError:
        sys.exit(f"qstat: Unknown Job Id {job_id}")


def save(folder, job):
    path = record_path(folder, job["id"])
    path.with_suffix(".new").write_text(json.dumps(job, indent=1))
    os.replace(path.with_suffix(".new"), path)


def next_id(folder):
    (folder / "jobs").mkdir(exist_ok=True)
    with open(folder / "jobs" / "sequence", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or 0) + 1
        file.truncate(0)
        file.write(str(number))
    return number


# ---- qsub -------------------------------------------------------------------------------------------------


def split_commas(text):
    """-v's list: commas separate, quotes and backslashes protect."""
    words, word, quote, i = [], "", None, 0
    while i < len(text):
        c = text[i]
        if c == "\\" and i + 1 < len(text):
            i += 1
            word += text[i]
        elif quote:
            if c == quote:
                quote = None
            else:
                word += c
        elif c in "'\"":
            quote = c
        elif c == ",":
            words.append(word)
            word = ""
        else:
            word += c
        i += 1
    return words + [word]


def read_options(words, job):
    """Applies -l -N -j ... to the job; returns what is left."""
    rest, i = [], 0
    while i < len(words):
        word = words[i]
        if not re.fullmatch(r"-[a-zA-Z]", word[:2]) or rest:
            rest.append(word)
            i += 1
            continue
        flag = word[1]
        if flag == "V":
            job["export_all"] = True
            i += 1
            continue
        if len(word) > 2:
            value = word[2:]
            i += 1
        else:
            if i + 1 == len(words):
                sys.exit(f"qsub: option requires an argument -- '{flag}'")
            value = words[i + 1]
            i += 2
        apply_option(job, flag, value)
    return rest


def apply_option(job, flag, value):
    if flag == "l":
        # place=... and select=... hold colons, commas part resources
        for resource in value.split(","):
            key, _, amount = resource.partition("=")
            job["resources"][key] = amount
    elif flag == "v":
        for item in split_commas(value):
            name, has_value, text = item.partition("=")
            if has_value:
                job["variables"][name] = text
            elif name in os.environ:
                job["variables"][name] = os.environ[name]
            else:
                sys.exit("qsub: cannot send environment with the job")
    elif flag == "W":
        key, _, what = value.partition("=")
        job[key] = what
    elif flag in "NqPAjoerkJ":
        job[{"N": "name", "q": "queue", "P": "project", "A": "account", "j": "join", "o": "output", "e": "error",
             "r": "rerunable", "k": "keep", "J": "array"}[flag]] = value
    else:
        sys.exit(f"qsub: illegal option -- {flag}")


def directives(text):
    """Words of the #PBS lines, up to the first line that is no comment."""
    import shlex
    for line in text.splitlines():
        if line.startswith("#PBS"):
            yield shlex.split(line[4:])
        elif line.strip() and not line.startswith("#"):
            return


def qsub(arguments):
    folder = lab()
    job = {"resources": {}, "variables": {}, "queue": "workq", "state": "Q", "join": "n",
           "project": "_pbs_project_default", "submit_arguments": " ".join(arguments), "workdir": os.getcwd()}
    from_line = json.loads(json.dumps(job))
    rest = read_options(arguments, from_line)
    if len(rest) != 1:
        sys.exit("qsub: script file expected" if not rest else "usage: qsub takes no script arguments")
    script = Path(rest[0])
    if not script.is_file():
        sys.exit(f"qsub: script file:: No such file or directory: {script}")
    text = script.read_text()
    job["name"] = script.name
    for words in directives(text):
        read_options(words, job)
    read_options(arguments, job)  # the command line overrules the directives
    if job.get("array"):
        low, high = map(int, job["array"].split("-"))
        number = next_id(folder)
        for index in range(low, high + 1):
            spool(folder, dict(job, array_index=index), f"{number}[{index}].{SERVER}", text)
        print(f"{number}[].{SERVER}")
    else:
        job_id = f"{next_id(folder)}.{SERVER}"
        spool(folder, job, job_id, text)
        print(job_id)


def spool(folder, job, job_id, text):
    job = dict(job, id=job_id, spooled=str(folder / "jobs" / f"{job_id}.SC"))
    Path(job["spooled"]).write_text(text)
    job["submitter"] = {k: os.environ[k] for k in ("HOME", "PATH", "SHELL", "LANG", "USER", "LOGNAME") if k in os.environ}
    if job.get("export_all"):
        job["variables"] = {**os.environ, **job["variables"]}
    save(folder, job)
    ask(folder, NODES[0], {"start": job_id})


# ---- the MoM of a node ------------------------------------------------------------------------------------


def ask(folder, node, message, fds=()):
    """Sends a request to a node's MoM and returns its answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.connect(str(folder / f"mom.{node}"))
        data = json.dumps(message).encode()
        s.sendmsg([len(data).to_bytes(4, "little") + data],
                  [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
        answer = b""
        while chunk := s.recv(65536):
            answer += chunk
    return json.loads(answer) if answer else {"status": 255}


def mom(folder, node):
    """The first process of a node: starts jobs and tasks, one thread each."""
    folder = Path(folder)
    os.environ["PBS_LAB"] = str(folder)
    path = folder / f"mom.{node}"
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen(64)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(folder, node, connection), daemon=True).start()


def serve(folder, node, connection):
    with connection:
        data, ancillary, _, _ = connection.recvmsg(1 << 20, socket.CMSG_SPACE(12))
        fds = array.array("i")
        for _, _, blob in ancillary:
            fds.frombytes(blob)
        size = int.from_bytes(data[:4], "little")
        data = data[4:]
        while len(data) < size:
            data += connection.recv(1 << 20)
        message = json.loads(data)
        answer = {}
        if "start" in message:
            threading.Thread(target=run_job, args=(folder, node, message["start"]), daemon=True).start()
        elif "task" in message:
            answer = {"status": run_task(folder, node, message, fds)}
        elif "signal" in message:
            answer = {"status": signal_job(folder, message["job"], message["signal"])}
        for fd in fds:
            os.close(fd)
        connection.sendall(json.dumps(answer or {"status": 0}).encode())


def chunks(job):
    """select=2:ncpus=4:mpiprocs=2+1:... as (host, ncpus, mpiprocs) a chunk, hosts in turn."""
    hosts = list(NODES)
    out = []
    for part in job["resources"].get("select", "1:ncpus=1").split("+"):
        words = part.split(":")
        count = int(words[0]) if words[0].isdigit() else 1
        values = dict(w.split("=") for w in words if "=" in w)
        ncpus = int(values.get("ncpus", 1))
        for _ in range(count):
            out.append((hosts[len(out) % len(hosts)], ncpus, int(values.get("mpiprocs", 1)), "mpiprocs" in values))
    return out


def job_environment(job, node_file):
    submitter = job["submitter"]
    first = chunks(job)[0]
    threads = 1 if first[3] else first[1]
    home = submitter.get("HOME", "/root")
    environment = {
        "HOME": home, "LOGNAME": submitter.get("LOGNAME", "root"), "USER": submitter.get("USER", "root"),
        "SHELL": "/bin/bash", "PATH": f"{os.environ['PBS_LAB']}/bin:{BASE_PATH}", "PBS_LAB": os.environ["PBS_LAB"],
        "NCPUS": str(first[1]), "OMP_NUM_THREADS": str(threads), "ENVIRONMENT": "BATCH",
        "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_JOBID": job["id"], "PBS_JOBNAME": job["name"], "PBS_QUEUE": job["queue"],
        "PBS_NODEFILE": node_file, "PBS_NODENUM": "0", "PBS_TASKNUM": "1", "PBS_MOMPORT": "15003",
        "PBS_O_WORKDIR": job["workdir"], "PBS_O_HOST": "login", "PBS_O_HOME": home, "PBS_O_QUEUE": job["queue"],
        "PBS_O_PATH": submitter.get("PATH", ""), "PBS_O_SHELL": submitter.get("SHELL", "/bin/bash"),
        "PBS_O_LOGNAME": submitter.get("LOGNAME", "root"), "PBS_O_SYSTEM": "Linux", "PBS_JOBDIR": home,
        "PBS_COOKIE": "0", "PBS_JOBCOOKIE": "0", "TMPDIR": "/tmp"}
    if "array_index" in job:
        environment["PBS_ARRAY_INDEX"] = str(job["array_index"])
        environment["PBS_ARRAY_ID"] = re.sub(r"\[.*\]", "[]", job["id"])
    environment.update(job["variables"])
    return environment


def wait_for_dependency(folder, job):
    kind, _, other = job.get("depend", "").partition(":")
    while other:
        before = load(folder, other)
        if before["state"] == "F":
            succeeded = before["exit_status"] == 0
            return kind == "afterany" or succeeded == (kind == "afterok")
        time.sleep(0.1)
    return True


def run_job(folder, node, job_id):
    job = load(folder, job_id)
    if not wait_for_dependency(folder, job):
        save(folder, dict(job, state="F", exit_status=-1, comment="dependency not met: deleted"))
        return
    node_file = folder / "jobs" / f"{job_id}.nodes"
    node_file.write_text("".join(f"{host}\n" * ranks for host, _, ranks, _ in chunks(job)))
    output = Path(job.get("output") or f"{job['name'][:15]}.o{job_id.split('.')[0]}")
    output = Path(job["workdir"]) / output
    environment = job_environment(job, str(node_file))
    with open(output, "ab") as out:
        process = subprocess.Popen(["/bin/bash", job["spooled"]], env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=out, cwd=environment["HOME"], start_new_session=True,
                                   preexec_fn=lambda: os.umask(0o077))
    job.update(state="R", session=process.pid, host=node, started=time.time(), exec_host=node)
    save(folder, job)
    limit = seconds(job["resources"].get("walltime", "10000:00:00"))
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        signal_session(process.pid, signal.SIGTERM)
        try:
            process.wait(KILL_DELAY)
        except subprocess.TimeoutExpired:
            pass
        signal_session(process.pid, signal.SIGKILL)
        process.wait()
    signal_session(process.pid, signal.SIGKILL)
    save(folder, dict(job, state="F", exit_status=process.returncode))


def seconds(text):
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(part)
    return total


def signal_session(session, number):
    """PBS signals every process of the job's session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), number)
            except (ProcessLookupError, PermissionError):
                pass


def signal_job(folder, job_id, name):
    job = load(folder, job_id)
    if job["state"] != "R":
        return 1
    signal_session(job["session"], getattr(signal, "SIG" + name.removeprefix("SIG")))
    return 0


def run_task(folder, node, message, fds):
    """What TM starts: no shell, a fresh environment, umask 077, no PBS_NODEFILE."""
    job = load(folder, message["job"])
    keep = job_environment(job, "")
    environment = {k: keep[k] for k in ("HOME", "LOGNAME", "USER", "SHELL", "PBS_JOBID", "PBS_ENVIRONMENT", "PBS_JOBCOOKIE",
                                        "PBS_MOMPORT", "PBS_QUEUE", "PBS_JOBDIR")}
    environment.update(PATH=BASE_PATH, PBS_NODENUM=str(NODES.index(node)), PBS_TASKNUM="2", TMPDIR="/tmp")
    try:
        process = subprocess.Popen(message["task"], env=environment, stdin=fds[0], stdout=fds[1], stderr=fds[2],
                                   cwd=environment["HOME"], start_new_session=True, preexec_fn=lambda: os.umask(0o077))
    except OSError as error:
        os.write(fds[2], f"pbs_tmrsh: {error}\n".encode())
        return 254
    return process.wait()


# ---- the small commands -----------------------------------------------------------------------------------


def wrapped(line):
    """qstat -f breaks long lines and begins what follows with a tab."""
    out = [line[:79]]
    rest = line[79:]
    while rest:
        out.append("\t" + rest[:71])
        rest = rest[71:]
    return "\n".join(out)


def qstat(arguments):
    wanted = [a for a in arguments if not a.startswith("-")]
    flags = {letter for a in arguments if a.startswith("-") for letter in a[1:]}
    for job_id in wanted:
        job = load(lab(), job_id)
        if job["state"] == "F" and "x" not in flags:
            sys.exit(f"qstat: {job['id']} Job has finished, use -x or -H to obtain historical job information")
        if "f" not in flags:
            print(job["id"], job["name"], job["state"], job["queue"])
            continue
        print(f"Job Id: {job['id']}")
        fields = {"Job_Name": job["name"], "job_state": job["state"], "queue": job["queue"], "server": SERVER,
                  "project": job["project"]}
        fields |= {f"Resource_List.{k}": v for k, v in sorted(job["resources"].items())}
        if "account" in job:
            fields["Account_Name"] = job["account"]
        if "started" in job:
            fields["stime"] = time.ctime(job["started"])
            fields["resources_used.walltime"] = time.strftime("%H:%M:%S", time.gmtime(time.time() - job["started"]))
        if "exit_status" in job:
            fields["Exit_status"] = job["exit_status"]
        fields["Variable_List"] = ",".join(f"{k}={v}" for k, v in job["variables"].items())
        fields["Submit_arguments"] = job["submit_arguments"]
        for key, value in fields.items():
            print(wrapped(f"    {key} = {value}"))
        print()


def qsig(arguments):
    name = "TERM"
    if arguments[:1] == ["-s"]:
        name, arguments = arguments[1], arguments[2:]
    for job_id in arguments:
        sys.exit(ask(lab(), NODES[0], {"signal": name, "job": load(lab(), job_id)["id"]})["status"])


def pbs_tmrsh(arguments):
    host, command = arguments[0], arguments[1:]
    if host not in NODES or not (lab() / f"mom.{host}").exists():
        sys.exit(f"pbs_tmrsh: {host}: not a node of this job")
    answer = ask(lab(), host, {"task": command, "job": os.environ["PBS_JOBID"]}, fds=(0, 1, 2))
    sys.exit(min(255, answer["status"] % 256))


def main():
    name = Path(sys.argv[0]).name
    if name == "pbs.py" and sys.argv[1:2] == ["mom"]:
        mom(*sys.argv[2:4])
    commands = {"qsub": qsub, "qstat": qstat, "qsig": qsig, "qdel": qsig, "pbs_tmrsh": pbs_tmrsh}
    if name not in commands:
        sys.exit(__doc__)
    commands[name](sys.argv[1:])


if __name__ == "__main__":
    main()
