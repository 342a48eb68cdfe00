# shellcheck shell=bash
# A rank that the memory limit kills says nothing: the job's cgroup does (memory.events, or version 1's memory.oom_control).
# Of other nodes the scheduler alone tells, in its log or accounts.

CGROUP_FOLDER=/sys/fs/cgroup
OWN_CGROUPS=/proc/self/cgroup

# The cgroups of this job that this process is in, innermost first: above them are other jobs'.
job_cgroups() {
  local path mark=/${PBS_JOBID:-}
  ! in_slurm || mark=/job_$SLURM_JOB_ID
  sed -n "s|^[0-9]*::|$CGROUP_FOLDER|p; s|^[0-9]*:memory:|$CGROUP_FOLDER/memory|p" "$OWN_CGROUPS" 2>/dev/null |
    while read -r path; do
      while [[ $path == *"$mark" || $path == *"$mark/"* ]]; do echo "$path"; path=${path%/*}; done
    done
}

# The first of these files that holds a number of bytes, as GiB; a limit of 2^62 is none.
first_in_gib() { cat "$@" 2>/dev/null | awk '/^[0-9]+$/ && $1 < 2^62 { printf "%.2f GiB", $1 / 2^30; exit }'; }

say_memory_kills() {
  local folder kills said=0 limit peak
  in_slurm || in_pbs || return 0
  while read -r folder; do
    kills=$(sed -n 's/^oom_kill //p' "$folder/memory.events" "$folder/memory.oom_control" 2>/dev/null | head -n 1)
    [ "${kills:-0}" -gt 0 ] || continue
    said=$kills
    limit=$(first_in_gib "$folder/memory.max" "$folder/memory.limit_in_bytes")
    peak=$(first_in_gib "$folder/memory.peak" "$folder/memory.max_usage_in_bytes")
  done < <(job_cgroups)
  [ "$said" = 0 ] || say "the job's memory limit has killed a process on $(uname -n), $said in all (limit ${limit:-unknown}, peak ${peak:-unknown});" \
    "ask for more (Slurm: --mem, PBS: mem= in select), or need less: data.batch_size, data.workers, ranks on a node"
}
