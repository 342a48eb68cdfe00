# shellcheck shell=bash disable=SC2034  # what is set here, the other parts read
# A rank that the memory limit kills says nothing: the job's cgroup does (memory.events, or version 1's memory.oom_control).
# A step of srun has cgroups of its own, which with version 1 do not count for the job and are gone with srun: slurmstepd
# reports them on srun's standard error. For other nodes only the scheduler reports them.

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

say_memory_kills() {  # $1: what slurmstepd said of them
  local folder kills said=0 limit peak where
  in_slurm || in_pbs || return 0
  while read -r folder; do
    kills=$(sed -n 's/^oom_kill //p' "$folder/memory.events" "$folder/memory.oom_control" 2>/dev/null | head -n 1)
    [ "${kills:-0}" -gt 0 ] || continue
    said=$kills
    limit=$(first_in_gib "$folder/memory.max" "$folder/memory.limit_in_bytes")
    peak=$(first_in_gib "$folder/memory.peak" "$folder/memory.max_usage_in_bytes")
  done < <(job_cgroups)
  if [ "$said" != 0 ]; then where="on $(uname -n), $said in all (limit ${limit:-unknown}, peak ${peak:-unknown})"
  elif [ -s "$1" ]; then where="in a step (Slurm's line above names it)"
  else return 0; fi
  OUT_OF_MEMORY=yes
  say "the job's memory limit has killed a process $where;" \
    "ask for more (Slurm: --mem, PBS: mem= in select), or need less: data.batch_size, data.workers, ranks on a node"
}
