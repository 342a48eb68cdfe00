# shellcheck shell=bash disable=SC2034  # what is set here, the other parts read
# What is Slurm's own: what it gave the job, how srun starts the ranks, how the job goes on.

slurm_gpus() {  # of this job on this node: what the node has is not what the job may use
  if [ -n "${SLURM_GPUS_ON_NODE:-}" ]; then
    printf '%s' "$SLURM_GPUS_ON_NODE"
  else
    gpus_in "${SLURM_JOB_GPUS:-${CUDA_VISIBLE_DEVICES:-}}"
  fi
}

slurm_allocation() {
  NODES=${SLURM_JOB_NUM_NODES:-1}
  tasks=${SLURM_NTASKS:-}
  cores=${SLURM_CPUS_ON_NODE:-1}
  gpus=$(slurm_gpus)
  [ -z "${SLURM_GPUS_PER_TASK:-}" ] || gpus=0  # Slurm has already matched tasks and GPUs
}

start_with_srun() {
  # srun does not inherit sbatch's --cpus-per-task; -K1 ends the step when one rank fails
  START=(srun --kill-on-bad-exit=1 --cpus-per-task="$CPUS_PER_RANK")
  [ -n "$RANKS_PER_NODE" ] && START+=(--ntasks="$RANKS" --ntasks-per-node="$RANKS_PER_NODE")
  [ -n "$RANKS_PER_NODE" ] && [ $((RANKS_PER_NODE * CPUS_PER_RANK)) -gt "${SLURM_CPUS_ON_NODE:-1}" ] && START+=(--overcommit)
  [ -n "${LOCKSTEP_SRUN_MPI:-}" ] && START+=(--mpi="$LOCKSTEP_SRUN_MPI")
  return 0
}

requeue_slurm() {
  # a task of an array by its own name: the last one's job id is the array's
  scontrol requeue "${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}"
}

slurm_field() {  # NAME in the text of scontrol show job; its first line holds the job's name, which may be anything
  sed -n "1d;s/^\(.* \)\?$1=\([^ ]*\).*/\2/p" <<<"$2" | head -n 1
}

# A plain scancel: the job is being ended, and neither by its limit, nor by pre-emption, nor to be started again.
cancelled_in_slurm() {
  local job
  job=$(scontrol show job "$SLURM_JOB_ID" 2>/dev/null)
  case $(slurm_field JobState "$job") in COMPLETING | CANCELLED) ;; *) return 1 ;; esac
  [ "$(slurm_field Reason "$job")" != TimeLimit ] || return 1
  case $(slurm_field PreemptTime "$job") in "" | None | Unknown) ;; *) return 1 ;; esac
  [ "$(slurm_field Restarts "$job")" = "${SLURM_RESTART_COUNT:-0}" ]
}
