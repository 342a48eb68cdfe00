# shellcheck shell=bash disable=SC2034  # what is set here, the other parts read
# How the job's ranks lie on its nodes: from what the scheduler gave (slurm.sh, pbs.sh) and what the user asked for.

gpus_in() {  # a list as CUDA_VISIBLE_DEVICES has it
  tr ',' '\n' <<<"${1#NoDevFiles}" | grep -c .
}

# Sets NODES, RANKS_PER_NODE (empty = as the scheduler laid the tasks out), RANKS, CPUS_PER_RANK.
read_allocation() {
  local gpus cores tasks name  # set by slurm_allocation and pbs_allocation, with NODES
  for name in LOCKSTEP_RANKS_PER_NODE LOCKSTEP_CPUS_PER_RANK; do
    [ -z "${!name:-}" ] || { is_number "${!name}" && [ "${!name}" -gt 0 ]; } || die "$name=${!name}: a number from 1 up is wanted"
  done
  CPUS_PER_RANK=${LOCKSTEP_CPUS_PER_RANK:-${SLURM_CPUS_PER_TASK:-}}
  if in_slurm; then
    slurm_allocation
  elif [ -n "${PBS_NODEFILE:-}" ]; then
    pbs_allocation
  else
    die "no job: neither SLURM_JOB_ID nor PBS_NODEFILE is set; submit this script with sbatch or qsub"
  fi
  RANKS_PER_NODE=
  if [ -n "${LOCKSTEP_RANKS_PER_NODE:-}" ]; then
    RANKS_PER_NODE=$LOCKSTEP_RANKS_PER_NODE
  elif [ "$gpus" -gt 0 ]; then
    RANKS_PER_NODE=$gpus
  elif [ -z "$tasks" ]; then
    RANKS_PER_NODE=$((cores / ${CPUS_PER_RANK:-1}))
    [ "$RANKS_PER_NODE" -gt 0 ] || RANKS_PER_NODE=1
  fi
  if [ -n "$RANKS_PER_NODE" ]; then
    RANKS=$((NODES * RANKS_PER_NODE))
    [ -n "$CPUS_PER_RANK" ] || CPUS_PER_RANK=$((cores / RANKS_PER_NODE))
    [ "$CPUS_PER_RANK" -gt 0 ] || CPUS_PER_RANK=1
  else
    RANKS=$tasks
    [ -n "$CPUS_PER_RANK" ] || CPUS_PER_RANK=1
  fi
  # PBS presets it to the whole node's cores; a rank's share is what is meant
  export OMP_NUM_THREADS=$CPUS_PER_RANK
}
