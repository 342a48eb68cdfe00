"""What the tests of the doctor between ranks share: faults of C's functions, and what was found of them."""

import dataclasses
import json

import pytest
from process_kit import shared_library

LIMIT = 300  # seconds, whatever is broken; what a test breaks would take an hour by itself

# On the ranks whose environment says so, the functions of C misbehave as a broken node's do.
FAULTS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <ifaddrs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int probe_file = -1;

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(clock, now);
  const char *ahead = getenv("FAULT_CLOCK");
  if (ahead && clock == CLOCK_REALTIME) now->tv_sec += atoi(ahead);
  return result;
}

/* the doctor's look at its interfaces; MPI has had its own by then */
int getifaddrs(struct ifaddrs **list) {
  Dl_info caller;
  const int ours = dladdr(__builtin_return_address(0), &caller) && strstr(caller.dli_fname, "liblockstep");
  if (ours && getenv("FAULT_STOP")) raise(SIGSTOP);
  return ((int (*)(struct ifaddrs **))dlsym(RTLD_NEXT, "getifaddrs"))(list);
}

int mkostemp(char *name, int flags) {
  const char *fault = getenv("FAULT_HANG");
  const int probe = fault && strstr(name, ".lockstep-doctor-");
  if (probe && strcmp(fault, "write")) sleep(3600);
  const int file = ((int (*)(char *, int))dlsym(RTLD_NEXT, "mkostemp"))(name, flags);
  if (probe) probe_file = file;
  return file;
}

/* into the probe's bytes: the probe is there by then */
ssize_t write(int fd, const void *bytes, size_t size) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "write");
  if (fd == probe_file) sleep(3600);
  return real(fd, bytes, size);
}
"""


@pytest.fixture(scope="session")
def faults(once):
    return once("faults", lambda folder: shared_library(folder, "faults.so", FAULTS)) / "faults.so"


@dataclasses.dataclass
class Told:
    """What a doctor said."""
    status: int
    report: dict

    def of(self, check, verdict=None):
        return [f for f in self.report["findings"] if f["check"] == check and verdict in (None, f["verdict"])]

    def said(self, check):
        return [(f["verdict"], f["says"]) for f in self.of(check)]

    def one(self, check, verdict, *words):
        """The finding of that check and verdict with all the words, which has a remedy unless all is well."""
        found = [f for f in self.of(check, verdict) if all(word in f["says"] for word in words)]
        assert len(found) == 1, self.said(check)
        assert bool(found[0]["remedy"]) == (verdict != "ok")
        return found[0]

    def is_well(self, *checks):
        for check in checks:
            assert self.of(check), f"{check} said nothing"
            assert self.of(check) == self.of(check, "ok"), self.said(check)


def told(result):
    status, out, err = (result.returncode, result.stdout, result.stderr) if hasattr(result, "stdout") else result
    assert "{" in out, out + err
    report, _ = json.JSONDecoder().raw_decode(out[out.index("{"):])
    assert report["seconds"] < LIMIT
    assert (status != 0) == (report["verdict"] == "failure"), (status, err)
    return Told(status, report)
