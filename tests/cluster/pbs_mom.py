"""The MoM of a node: starts jobs and TM's tasks, hands them signals, ends them. One thread each.

As OpenPBS 23.06 does: a login shell leads a job's session and starts the script; a signal goes to the whole session.
A qsig that ends the shell ends the job, whose other processes are killed 1.5 s later. qdel, qrerun and the walltime
send SIGTERM, then wait kill_delay for whatever is left, the shell or not, then send SIGKILL. qrerun starts the job again.
"""
import array
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from pbs_record import chunks, kill_delay, load, nodes, output_path, save

BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ORPHANS_LIVE = 1.5


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
    """The first process of a node."""
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
        size, data = int.from_bytes(data[:4], "little"), data[4:]
        while len(data) < size:
            data += connection.recv(1 << 20)
        message = json.loads(data)
        answer = {}
        if "start" in message:
            threading.Thread(target=run_job, args=(folder, node, message["start"]), daemon=True).start()
        elif "task" in message:
            answer = {"status": run_task(folder, node, message, fds)}
        elif "kill" in message:
            kill_here(folder, load(folder, message["job"]), node, message["kill"])
        for fd in fds:
            os.close(fd)
        connection.sendall(json.dumps(answer or {"status": 0}).encode())


# ---- what a job and a task see ----------------------------------------------------------------------------


def pbs_o(job):
    """PBS_O_*: the submitter's environment, and the queue that was submitted to."""
    names = {"HOME": "HOME", "PATH": "PATH", "SHELL": "SHELL", "LANG": "LANG", "LOGNAME": "LOGNAME"}
    told = {f"PBS_O_{name}": job["submitter"].get(key, "") for name, key in names.items()}
    return {**told, "PBS_O_WORKDIR": job["workdir"], "PBS_O_HOST": "login", "PBS_O_SYSTEM": "Linux",
            "PBS_O_QUEUE": job["submitted_to"]}


def task_environment(folder, job, node):
    """What any process of a job has: no PBS_NODEFILE, none of -v."""
    first = chunks(job)[0][1]
    user = job["submitter"].get("USER", "root")
    environment = {
        "HOME": str(folder / "home"), "LOGNAME": user, "USER": user, "SHELL": "/bin/bash", "PATH": BASE_PATH,
        "NCPUS": first["ncpus"], "OMP_NUM_THREADS": "1" if "mpiprocs" in first else first["ncpus"], "ENVIRONMENT": "BATCH",
        "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_JOBID": job["id"], "PBS_JOBNAME": job["name"], "PBS_QUEUE": job["queue"],
        "PBS_NODENUM": str(nodes().index(node)), "PBS_MOMPORT": "15003", "PBS_JOBDIR": str(folder / "home"),
        "PBS_COOKIE": "0", "PBS_JOBCOOKIE": "0", "TMPDIR": f"/var/tmp/pbs.{job['id']}", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **pbs_o(job)}
    os.makedirs(environment["TMPDIR"], exist_ok=True)
    return environment


def job_environment(folder, job, node):
    node_file = folder / "jobs" / f"{job['id']}.nodes"
    node_file.write_text("".join(f"{host}\n" * int(wanted.get("mpiprocs", 1)) for host, wanted in chunks(job)))
    environment = task_environment(folder, job, node)
    environment.update(PBS_TASKNUM="1", PBS_NODEFILE=str(node_file), PBS_LAB=str(folder), LAB_PATH=BASE_PATH)
    if "array_index" in job:
        environment["PBS_ARRAY_INDEX"] = str(job["array_index"])
        environment["PBS_ARRAY_ID"] = re.sub(r"\[.*\]", "[]", job["id"])
    environment.update(job["variables"])
    # /etc/profile sets PATH again; the home's profile, as a site's modules would, puts back what the test asked for
    environment["LAB_PATH"] = environment["PATH"]
    return environment


def run_task(folder, node, message, fds):
    """What TM starts: no shell, a fresh environment, umask 077."""
    job = load(folder, message["job"])
    environment = task_environment(folder, job, node)
    environment["PBS_TASKNUM"] = "2"
    try:
        process = subprocess.Popen(message["task"], env=environment, stdin=fds[0], stdout=fds[1], stderr=fds[2],
                                   cwd=environment["HOME"], start_new_session=True, preexec_fn=lambda: os.umask(0o077))
    except OSError as error:
        os.write(fds[2], f"pbs_tmrsh: {error}\n".encode())
        return 254
    remember_session(folder, job, node, process.pid)
    status = process.wait()
    return status if status >= 0 else 256 - status


# ---- a job's life -----------------------------------------------------------------------------------------


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
        save(folder, job, state="F", exit_status=-1, comment="dependency not met: deleted")
        return
    if not chunks(job):
        save(folder, job, comment="Can Never Run: Insufficient amount of resource: ncpus")
        return
    while attempt(folder, node, job_id) == "rerun":
        pass


def attempt(folder, node, job_id):
    job = load(folder, job_id)
    environment = job_environment(folder, job, node)
    shell = job.get("shell", "/bin/bash")
    with open(output_path(job), "ab") as out:
        leader = subprocess.Popen(["-" + Path(shell).name], executable=shell, env=environment, stdin=subprocess.PIPE,
                                  stdout=out, stderr=out, cwd=environment["HOME"], start_new_session=True,
                                  preexec_fn=lambda: os.umask(0o077))
        remember_session(folder, job, node, leader.pid)
        leader.stdin.write(re.sub(r"([][])", r"\\\1", job["spooled"]).encode() + b"\n")
        leader.stdin.close()
    save(folder, job, state="R", started=time.time(), run_count=job.get("run_count", 0) + 1, end=None)
    wait_for_end(folder, job, node, leader)
    ended_by = load(folder, job_id)["end"]
    kill_everywhere(folder, job, signal.SIGKILL)
    for there in nodes():
        sessions_file(folder, job, there).unlink(missing_ok=True)
    status = leader.wait()
    shutil.rmtree(environment["TMPDIR"], ignore_errors=True)
    if ended_by == "rerun":
        save(folder, job, state="Q")
        return "rerun"
    save(folder, job, state="F", exit_status=status if status >= 0 else 256 - status)
    return "over"


def wait_for_end(folder, job, node, leader):
    """Until nothing of the job may live longer."""
    limit = job["started"] + seconds(job["resources"].get("walltime", "10000:00:00"))
    while leader.poll() is None or load(folder, job["id"])["end"]:
        told = load(folder, job["id"])
        if told["end"]:
            if time.time() > told["kill_at"] or not processes(folder, job, node):
                return
        elif time.time() > limit:
            with open(output_path(job), "a") as out:
                out.write(f"=>> PBS: job killed: walltime {int(time.time() - job['started'])} exceeded limit\n")
            end_job(folder, job["id"], "walltime")
        time.sleep(0.05)
    if leader.returncode < 0:
        time.sleep(ORPHANS_LIVE)


def end_job(folder, job_id, why):
    """What qdel, qrerun and the walltime do: SIGTERM now, SIGKILL kill_delay later."""
    job = load(folder, job_id)
    if job["state"] == "F":
        return 1
    save(folder, job, end=why, comment="Job run" + " and terminated by root@login" * (why == "deleted"), kill_at=time.time() + kill_delay(folder))
    kill_everywhere(folder, job, signal.SIGTERM)
    return 0


def signal_job(folder, job_id, name):
    """What qsig does."""
    job = load(folder, job_id)
    if job["state"] != "R":
        return 1
    kill_everywhere(folder, job, getattr(signal, "SIG" + name.removeprefix("SIG")))
    return 0


def kill_everywhere(folder, job, number):
    for node in {host for host, _ in chunks(job)}:
        with contextlib.suppress(ConnectionError):  # a node without power
            ask(folder, node, {"kill": number, "job": job["id"]})


def kill_here(folder, job, node, number):
    for pid in processes(folder, job, node):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def seconds(text):
    return sum(int(part) * 60**i for i, part in enumerate(reversed(text.split(":"))))


def sessions_file(folder, job, node):
    return folder / "jobs" / f"{job['id']}.{node}.sessions"


def remember_session(folder, job, node, pid):
    with open(sessions_file(folder, job, node), "a") as file:
        file.write(f"{pid}\n")


def processes(folder, job, node):
    """Every living process of the job's sessions on this node: the shell's, and those of TM's tasks."""
    try:
        sessions = set(sessions_file(folder, job, node).read_text().split())
    except FileNotFoundError:
        return []
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[3] in sessions and fields[0] != "Z":
                found.append(int(entry.name))
    return found
