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
