# shellcheck shell=bash
# What the scripts share. Source it; it only defines functions and `root`, the folder of the repository.
# shellcheck disable=SC2034
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
begun_in=$PWD
absolute() { case $1 in /*) echo "$1" ;; *) echo "$begun_in/$1" ;; esac; }

say() { if [ -t 2 ]; then printf '\033[1m%s\033[0m\n' "$*"; else printf '%s\n' "$*"; fi >&2; }
fail() {
  printf 'error: %s\n' "$1" >&2
  if [ -n "${2:-}" ]; then printf '  hint: %s\n' "$2" >&2; fi
  exit 1
}

misused() { # wrong arguments are bad input
  (fail "$@") || exit 2
}

# Is this file a shell script, by its first line?
is_shell() { head -n 1 "$1" 2>/dev/null | grep -qE '^#!.*\b(ba|da)?sh\b|shellcheck shell='; }

# at_least HAVE WANT: compares versions
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# The memory this process can still use, in MiB: the machine's, or less if a control group (a batch job) limits it.
memory_left() {
  local left group limit used path
  left=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
  path=$(sed -n 's/^0:://p' /proc/self/cgroup 2>/dev/null)
  group=/sys/fs/cgroup$path
  while [ "${#group}" -ge 14 ]; do
    limit=$(cat "$group/memory.max" 2>/dev/null || echo max)
    if [ "$limit" != max ]; then
      used=$(cat "$group/memory.current" 2>/dev/null || echo 0)
      limit=$(((limit - used) / 1048576))
      if [ "$limit" -lt "$left" ]; then left=$limit; fi
    fi
    group=${group%/*}
  done
  echo "$left"
}

# How many files to compile at once: some torch files at once take up to 1.5 GB.
compile_jobs() {
  local cores by_memory
  cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) # these are for threads, not for compilers
  by_memory=$(($(memory_left) / 1500))
  if [ "$by_memory" -lt 1 ]; then by_memory=1; fi
  echo "${CMAKE_BUILD_PARALLEL_LEVEL:-$((cores < by_memory ? cores : by_memory))}"
}

# mpirun as root and with more ranks than cores, as in a container; variables that are set stay
mpi_environment() {
  if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  export OMPI_MCA_rmaps_base_oversubscribe=${OMPI_MCA_rmaps_base_oversubscribe:-1}
}

# The value of a key in a build folder's CMakeCache.txt
cache_value() { sed -n "s/^$2:[A-Z]*=//p" "$1/CMakeCache.txt"; }
