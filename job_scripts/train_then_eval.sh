#!/bin/bash
# Two jobs, the second after the first has succeeded: train, then measure the newest checkpoint.
#   job_scripts/train_then_eval.sh [sbatch's or qsub's options] SCRIPT [arguments]
#   job_scripts/train_then_eval.sh --nodes=2 --account=mine --time=02:00:00 job_scripts/ddp.slurm configs/mnist.yaml
#   CONFIG=configs/pima.yaml job_scripts/train_then_eval.sh -l select=2:ncpus=2:mpiprocs=2 -l place=scatter job_scripts/ddp.pbs
# Both get the options (account, partition, time, nodes), but for what is one job's own: name, output, dependency,
# array, begin, hold. If one cannot be submitted, neither is left.
# Where PBS stops the training early, its fresh qsub is another job, and the second one is not run: submit eval.pbs.
set -eu
here=$(dirname "$0")
# shellcheck source=job_scripts/leftovers.sh
. "$here/leftovers.sh"
# shellcheck source=job_scripts/carry.sh
. "$here/carry.sh"
options=()
until [[ ${1:-} =~ \.(slurm|pbs)$ ]]; do
  [ $# -gt 0 ] || { sed -n '2,8s/^# \?//p' "$0" >&2; exit 2; }
  options+=("$1")
  shift
done
script=$1
shift

# The options that the second job gets too, in `shared`; "$@" are the names of the others, which take a value.
share_options() {
  local i word
  shared=()
  for ((i = 0; i < ${#options[@]}; ++i)); do
    word=${options[i]}
    if [ "$word" = --hold ] || [ "$word" = -H ]; then continue; fi
    if [[ " $* " == *" $word "* ]]; then  # its value is the next word
      i=$((i + 1))
    elif [[ " $* " == *" ${word%%=*} "* || ($word != --* && " $* " == *" ${word:0:2} "*) ]]; then  # --name=x, -Jx
      continue
    else
      shared+=("$word")
    fi
  done
}

submit_to_slurm() {
  share_options --job-name -J --output -o --error -e --dependency -d --array -a --begin -b
  train=$(hand_in sbatch --parsable --export=ALL --hold "${options[@]}" "$script" "$@") || return 1
  if ! then=$(hand_in sbatch --parsable --export=ALL "${shared[@]}" --dependency=afterok:"${train%%;*}" --kill-on-invalid-dep=yes "$here/eval.slurm"); then
    scancel "${train%%;*}"
    return 1
  fi
  case " ${options[*]} " in *" -H "* | *" --hold "*) ;; *) scontrol release "${train%%;*}" ;; esac
}

submit_to_pbs() {
  share_options -N -o -e -J -a
  train=$(qsub_with_settings "$script" "${options[@]}") || return 1
  if ! then=$(qsub_with_settings "$here/eval.pbs" "${shared[@]}" -W depend=afterok:"$train"); then
    qdel "$train"
    return 1
  fi
}

export LOCKSTEP_RUN_FILE LOCKSTEP_HOME
LOCKSTEP_HOME=$(realpath "${LOCKSTEP_HOME:-$here/..}")
LOCKSTEP_RUN_FILE=$PWD/.lockstep-then-$(date +%Y%m%d-%H%M%S)-$$
case $script in
  *.slurm) submit_to_slurm "$@" ;;
  *.pbs) submit_to_pbs ;;
esac || { echo "one of the two could not be submitted, so neither is" >&2; exit 1; }
note_jobs "$LOCKSTEP_RUN_FILE" "$train" "$then"
echo "train: job $train, then eval: job $then"
