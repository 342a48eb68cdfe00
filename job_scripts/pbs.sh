# shellcheck shell=bash disable=SC2034  # what is set here, the other parts read
# What PBS knows of the job, and what it gave it.

pbs_command() { command -v "$1" || echo "${PBS_EXEC:-/opt/pbs}/bin/$1"; }  # often off the PATH of a job

# qstat -f's lines, long ones joined.
read_pbs_record() { PBS_RECORD=$("$(pbs_command qstat)" -f "$PBS_JOBID" 2>/dev/null | sed ':a;N;$!ba;s/\n\t//g'); }

field_of_pbs_job() { sed -n "s/^    ${1//./\\.} = //p" <<<"$PBS_RECORD"; }

# A line a host: its lines in the node file, its cores, its GPUs. Chunks may lie on one host together:
# exec_host=n1/0*2+n1/1*2 and exec_vnode=(n1:ncpus=2:ngpus=1)+(n1:ncpus=2) have an entry a chunk.
pbs_hosts() {
  { sed 's/^/line /; s/[.].*//' "$PBS_NODEFILE"
    field_of_pbs_job exec_host | tr '+' '\n' | sed 's/^/host /; s/[./].*//'
    field_of_pbs_job exec_vnode | sed 's/)+(/\n/g' | tr -d '()' | tr ':+' '  ' | sed 's/^/chunk /'; } | awk '
    $1 == "line" && !lines[$2]++ { order[++hosts] = $2 }
    $1 == "host" { on[++entries] = $2 }
    $1 == "chunk" {
      host = on[++chunks]
      for (i = 3; i <= NF; ++i) {
        if (sub(/^ncpus=/, "", $i)) cores[host] += $i
        if (sub(/^ngpus=/, "", $i)) gpus[host] += $i
      }
    }
    END { for (i = 1; i <= hosts; ++i) print lines[order[i]], cores[order[i]] + 0, gpus[order[i]] + 0 }'
}

pbs_cpus_of_this_node() {
  "$(pbs_command pbsnodes)" "$(hostname -s)" 2>/dev/null | sed -n 's/^ *resources_available.ncpus = \([1-9][0-9]*\)$/\1/p'
}

# ncpus is what PBS counts, cores or hardware threads.
pbs_allocation() {
  local hosts lines cpus gpu_counts threads i visible
  read_pbs_record
  # no record to be had: NCPUS is of one chunk
  mapfile -t hosts < <(pbs_hosts)
  mapfile -t lines < <(printf '%s\n' "${hosts[@]}" | cut -d ' ' -f 1)
  mapfile -t cpus < <(printf '%s\n' "${hosts[@]}" | cut -d ' ' -f 2 | sed "s/^0$/${NCPUS:-1}/")
  mapfile -t gpu_counts < <(printf '%s\n' "${hosts[@]}" | cut -d ' ' -f 3)
  threads=$(threads_per_core "$(pbs_cpus_of_this_node)")
  NODES=${#hosts[@]}
  cores=$(at_least_1 $(($(least "${cpus[@]}") / threads)))
  given=$(($(sum "${cpus[@]}") / threads))
  visible=$(gpus_in "${CUDA_VISIBLE_DEVICES:-}")
  gpus=$visible
  [ "$gpus" -gt 0 ] || gpus=$(least "${gpu_counts[@]}")
  tasks=$(sum "${lines[@]}")
  if [ "$tasks" = "$NODES" ] && ! [[ $(field_of_pbs_job Resource_List.select) == *mpiprocs=* ]]; then
    tasks=  # a line a host: nothing was said of ranks
    return
  fi
  [ "$(printf '%s\n' "${lines[@]}" | sort -u | wc -l)" != 1 ] || tasks_per_node=${lines[0]}
  cores_per_task=$(at_least_1 $(($(least "$(for i in "${!lines[@]}"; do echo $((cpus[i] / lines[i])); done)") / threads)))
}

seconds_of() {  # [[HH:]MM:]SS
  local part total=0
  for part in ${1//:/ }; do total=$((total * 60 + 10#$part)); done
  echo "$total"
}

# How long the job has run by MoM's clock, which begins with the session's first process.
seconds_of_pbs_job() { ps -o etimes= -p "$(ps -o sid= -p $$ | tr -d ' ')" | tr -d ' '; }

# SIGTERM is all that PBS says of a qdel, a pre-emption and the walltime: only the clock tells the last one, which never
# strikes early. What counts is when it came (TERM_AT), not when the checkpoint was written.
walltime_is_over() {
  local limit
  limit=$(field_of_pbs_job Resource_List.walltime)
  [ -n "$limit" ] && [ $((${TERM_AT:-$SECONDS} + 2)) -ge "$(seconds_of "$limit")" ]
}

cancelled_in_pbs() { [ "$GOT" = TERM ] && [ "${LOCKSTEP_ON_TERM:-stop}" = stop ] && ! walltime_is_over; }

# ---- the nodes that are left, for relaunch.sh ----

nodes_of_pbs() { awk 'NF && !seen[$1]++ { print $1 }' "$PBS_NODEFILE"; }

ask_pbs_node() {  # NODE COMMAND...
  local tmrsh
  tmrsh=$(pbs_command pbs_tmrsh)
  if [ -x "$tmrsh" ]; then  # else the kernel's answer has to do
    timeout -s KILL "$STEP_TIMEOUT" "$tmrsh" "$@"
  fi
}

keep_pbs_nodes() {
  local file
  [ ${#LOST[@]} -gt 0 ] || return 0
  file=$(own_file nodes)
  printf '%s\n' "${LEFT[@]}" | awk 'NR == FNR { left[$1] = 1; next } $1 in left' - "$PBS_NODEFILE" >"$file.new" && mv "$file.new" "$file"
  export PBS_NODEFILE=$file
}
