# shellcheck shell=bash disable=SC2034  # what is set here, the other parts read
# What is PBS's own: what it gave the job, and how the job goes on.

pbs_command() { command -v "$1" || echo "${PBS_EXEC:-/opt/pbs}/bin/$1"; }  # often off the PATH of a job

field_of_pbs_job() {  # a field of qstat -f, long lines joined
  "$(pbs_command qstat)" -f "$PBS_JOBID" 2>/dev/null | awk -v key="$1" '
    /^\t/ { if (hit) value = value substr($0, 2); next }
    { hit = 0 }
    index($0, "    " key " = ") == 1 { hit = 1; value = substr($0, length(key) + 8) }
    END { print value }'
}

# The value of NAME in PBS's select=2:ncpus=8:mpiprocs=2:ngpus=1, of its first chunk; nothing where it was not asked for.
asked_of_pbs() { field_of_pbs_job Resource_List.select | tr ':+' '\n' | sed -n "s/^$1=//p" | head -n 1; }

pbs_gpus() {  # of this job on this node
  local count
  count=$(gpus_in "${CUDA_VISIBLE_DEVICES:-}")
  [ "$count" -gt 0 ] || count=$(asked_of_pbs ngpus)
  printf '%s' "${count:-0}"
}

pbs_allocation() {
  NODES=$(sort -u "$PBS_NODEFILE" | grep -c .)
  tasks=$(grep -c . "$PBS_NODEFILE")
  cores=${NCPUS:-1}
  gpus=$(pbs_gpus)
  # one line a host: 1 rank was asked for, or nothing was said
  [ "$tasks" -gt "$NODES" ] || [ -n "$(asked_of_pbs mpiprocs)" ] || tasks=
  if [ -n "$tasks" ] && [ $((tasks % NODES)) = 0 ]; then  # the same on each host: mapped with all its cores
    LOCKSTEP_RANKS_PER_NODE=${LOCKSTEP_RANKS_PER_NODE:-$([ "$gpus" -gt 0 ] || echo $((tasks / NODES)))}
  fi
}

# The names that a new submission passes on with their values: what the first one passed, and ours. -v NAME without a
# value takes it from this environment, so commas and quotes survive.
names_to_pass() {
  { field_of_pbs_job Variable_List | tr ',' '\n' | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p' | grep -vE '^(PBS_|LOCKSTEP_RUN_FILE$)'
    compgen -e | grep -E '^(LOCKSTEP_|CONFIG$|SET$)' | grep -v '^LOCKSTEP_RUN_FILE$'
    [ -z "$KEPT_RUN_FILE" ] || echo LOCKSTEP_RUN_FILE; } | sort -u | while read -r name; do
    [ -n "${!name+set}" ] && echo "$name"
  done | paste -sd,
}

# The same job again: every word is an argument of its own, nothing passes through a shell. A copy of a script says in
# LOCKSTEP_SCRIPT where it lies; a task of an array goes on as a job of its own.
resubmit_pbs() {
  local resources=() value name script=$LOCKSTEP_SCRIPT
  for name in select place walltime; do
    value=$(field_of_pbs_job "Resource_List.$name")
    [ -n "$value" ] && resources+=(-l "$name=$value")
  done
  for name in "Job_Name -N" "queue -q" "project -P" "Account_Name -A"; do
    value=$(field_of_pbs_job "${name% *}")
    [ -n "$value" ] && [ "$value" != _pbs_project_default ] && resources+=("${name#* }" "$value")
  done
  export LOCKSTEP_RESTART=$((${LOCKSTEP_RESTART:-0} + 1))
  if [ -n "${PBS_ARRAY_INDEX:-}" ]; then
    export CONFIG
    SET=$(printf '%s\n' "${AS_SET[@]}")
    export SET
    script=ddp.pbs
  fi
  case $script in /*) ;; *) script=$LOCKSTEP_HOME/job_scripts/$script ;; esac
  (cd "${PBS_O_WORKDIR:-.}" && "$(pbs_command qsub)" "${resources[@]}" -v "$(names_to_pass)" "$script")
}
