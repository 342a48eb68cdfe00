# shellcheck shell=bash
# How ranks are started here: srun (slurm.sh), or the MPI's mpirun or mpiexec.

mpi_family() {  # of the command $1
  local text
  text=$("$1" --version 2>&1 </dev/null | head -n 3)
  case $text in
    *"Open MPI"* | *OpenRTE* | *PRRTE* | *prte*) echo openmpi ;;
    *PALS*) echo pals ;;
    *HYDRA* | *Intel* | *MPICH*) echo hydra ;;
    *) echo unknown ;;
  esac
}

openmpi_has() { ompi_info --parsable 2>/dev/null | grep -q "^mca:[a-z]*:$1:"; }

# Fills the array START with the command that starts RANKS copies of what follows it.
choose_start() {
  local kind=${LOCKSTEP_START:-}
  if [ -z "$kind" ]; then
    if in_slurm && command -v srun >/dev/null; then kind=srun
    elif command -v mpirun >/dev/null && [ "$(mpi_family mpirun)" = openmpi ]; then kind=mpirun
    elif command -v mpiexec >/dev/null; then kind=mpiexec
    elif command -v mpirun >/dev/null; then kind=mpirun
    else die "no srun, mpirun or mpiexec on PATH; load the MPI module that lockstep was built with"; fi
  fi
  command -v "$kind" >/dev/null || die "LOCKSTEP_START=$kind: no such command on PATH"
  case $kind in
    srun) start_with_srun ;;
    mpirun | mpiexec)
      case $(mpi_family "$kind") in
        openmpi) start_with_openmpi "$kind" ;;
        pals) START=("$kind" -n "$RANKS" --ppn "$(ranks_on_a_node)") ;;
        *) start_with_hydra "$kind" ;;
      esac ;;
    *) die "LOCKSTEP_START=$kind: choose srun, mpirun or mpiexec" ;;
  esac
}

ranks_on_a_node() { echo $(((RANKS + NODES - 1) / NODES)); }

start_with_openmpi() {
  # -q: no banner under our own error
  START=("$1" -q -n "$RANKS")
  # A dying job gets twice 5 s, not 2, to write its checkpoint. mpirun takes that time after every status but 0,
  # even with nobody left to kill, so it is told to pass over statuses: the run's folder knows how it ended.
  [ -n "${LOCKSTEP_RUN_FILE:-}" ] && START+=(--mca odls_base_sigkill_timeout 5 --mca orte_abort_on_non_zero_status 0)
  if [ -n "$RANKS_PER_NODE" ]; then
    START+=(--map-by "ppr:$RANKS_PER_NODE:node:PE=$CPUS_PER_RANK" --bind-to core:overload-allowed --oversubscribe)
  fi
  [ "$(id -u)" = 0 ] && START+=(--allow-run-as-root)
  if ! in_slurm && ! openmpi_has tm; then
    START+=(--hostfile "$PBS_NODEFILE")
    if [ "$NODES" -gt 1 ]; then
      START+=(--mca plm_rsh_agent "$LOCKSTEP_HOME/job_scripts/pbs_agent.sh")
      # a task that TM starts gets a fresh environment: what the ranks need travels by name
      local name
      for name in PATH LD_LIBRARY_PATH $(compgen -e | grep -E '^(LOCKSTEP_|PBS_|OMP_|GLOO_|NCCL_|TORCH_|CUDA_|NCPUS$|TMPDIR$)'); do
        [ -n "${!name+set}" ] && START+=(-x "$name")
      done
    fi
  fi
  return 0
}

start_with_hydra() {
  START=("$1" -n "$RANKS" -ppn "$(ranks_on_a_node)")
  in_slurm && return
  START+=(-f "$PBS_NODEFILE")
  # hydra seldom knows tm, and would need ssh between the nodes; what the site has set stays
  if [ "$NODES" -gt 1 ] && [ -z "${HYDRA_LAUNCHER:-}${HYDRA_LAUNCHER_EXEC:-}${HYDRA_BOOTSTRAP:-}" ] &&
    [ -x "$(pbs_command pbs_tmrsh)" ]; then
    export HYDRA_LAUNCHER=rsh HYDRA_LAUNCHER_EXEC=$LOCKSTEP_HOME/job_scripts/pbs_agent.sh
  fi
  return 0
}
