# shellcheck shell=bash
# Files that jobs leave in the folder of submission when they are killed: the next start there sweeps them.
#   .lockstep-run-ID              one job's: where its run is
#   .lockstep-{errorsN,nodes,silentN}-ID  one job's: what its ranks died of, on PBS the nodes that are left, those that are silent
#   .lockstep-next-ID             one job's on PBS: which was submitted in its place
#   .lockstep-chain-X, -then-X    several jobs': the ids are in X.jobs

# A scheduler's job ids are its own; folders may be shared by clusters.
cluster_name() {
  if [ -n "${SLURM_CLUSTER_NAME:-}" ]; then
    echo "$SLURM_CLUSTER_NAME"
  else
    scontrol show config 2>/dev/null | sed -n 's/^ClusterName *= *//p'
  fi
}

own_run_file() { echo "$PWD/.lockstep-run-${SLURM_CLUSTER_NAME:+$SLURM_CLUSTER_NAME.}$(job_id)"; }

# Writes beside the file $1 whose it is: the jobs $2...
note_jobs() { printf '%s\n' "$(cluster_name)" "${@:2}" >"$1.jobs"; }

# Only what the scheduler says plainly counts: one that does not answer keeps every file.
job_is_gone() {
  local answer
  if in_slurm; then
    [[ $1 =~ ^[0-9]+$ ]] || return
    # a filter of the user's own would make a live job look gone
    if answer=$(unset "${!SQUEUE_@}" && squeue --noheader --jobs="$1" --format=%A 2>&1); then
      [ -z "$answer" ]
    else
      [[ $answer == *"Invalid job id"* ]]
    fi
  else
    [[ $1 =~ ^[0-9]+(\[[0-9]*\])?\. && ${1#*.} = "${PBS_JOBID#*.}" ]] || return  # another server is not asked
    answer=$("$(pbs_command qstat)" "$1" 2>&1)
    [[ $answer == *"Unknown Job Id"* || $answer == *"has finished"* ]]
  fi
}

all_jobs_are_gone() {  # of the file $1, which note_jobs wrote on this cluster
  local id
  [ "$(head -n 1 "$1")" = "$(cluster_name)" ] || return
  while read -r id; do
    job_is_gone "${id%%;*}" || return
  done < <(tail -n +2 "$1")
}

sweep_leftovers() {
  local file id cluster=${SLURM_CLUSTER_NAME:+$SLURM_CLUSTER_NAME.}
  for file in "$PWD"/.lockstep-{run,next,errors*,nodes,silent*}-"$cluster"*; do
    id=${file#"$PWD"/.lockstep-*-}
    [ -e "$file" ] && job_is_gone "${id#"$cluster"}" && rm -f "$file"
  done
  for file in "$PWD"/.lockstep-chain-*.jobs "$PWD"/.lockstep-then-*.jobs; do
    [ -e "$file" ] && all_jobs_are_gone "$file" && rm -f "$file" "${file%.jobs}"
  done
  return 0
}
