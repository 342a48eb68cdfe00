# shellcheck shell=bash
# The same job again on PBS, by a fresh qsub: what it was given (qstat -f), the script that ran, its settings. Every word
# is an argument of its own, nothing passes through a shell.

# qstat's fields that are an option of qsub, and the value that needs no saying
PBS_OPTIONS="Account_Name=-A Mail_Points=-m Mail_Users=-M Join_Path=-j Keep_Files=-k Priority=-p Shell_Path_List=-S
  User_List=-u project=-P group_list=-Wgroup_list= umask=-Wumask= sandbox=-Wsandbox= stagein=-Wstagein= stageout=-Wstageout="

pbs_options() {  # fills OPTIONS
  local word value
  OPTIONS=(-N "$(field_of_pbs_job Job_Name | sed 's/[^A-Za-z0-9.+_-]/_/g')")
  for word in $PBS_OPTIONS; do
    value=$(field_of_pbs_job "${word%%=*}")
    word=${word#*=}
    case $value in
      "" | _pbs_project_default) ;;
      *) case $word in -W*) OPTIONS+=(-W "${word#-W}$value") ;; *) OPTIONS+=("$word" "$value") ;; esac ;;
    esac
  done
  case $(field_of_pbs_job Rerunable) in False) OPTIONS+=(-r n) ;; True) OPTIONS+=(-r y) ;; esac
  # the execution queue behind a routing queue takes no user's jobs
  [ -z "${PBS_O_QUEUE:-}" ] || OPTIONS+=(-q "$PBS_O_QUEUE")
  pbs_resources
  pbs_outputs
}

# PBS adds sums over the chunks (ncpus, mem, nodect), and refuses them beside select.
pbs_resources() {
  local name value sums
  sums=" nodect nodes ncpus mem vmem mpiprocs ompthreads $(
    { field_of_pbs_job Resource_List.select; field_of_pbs_job schedselect; } | tr ':+' '\n' | sed -n 's/=.*//p' | paste -sd ' ') "
  while IFS='=' read -r name value; do
    name=${name// /}
    [[ $sums == *" $name "* ]] || OPTIONS+=(-l "$name=${value# }")
  done < <(sed -n 's/^    Resource_List\.//p' <<<"$PBS_RECORD")
}

# Files that were asked for by name. With -k d PBS appends as the job writes: the log goes on. It would replace a file
# that it copies at the end: the next one gets a name of its own.
pbs_outputs() {
  local flag path direct number=${PBS_JOBID%%[.[]*}
  direct=$(field_of_pbs_job Keep_Files)
  for flag in Output_Path=-o Error_Path=-e; do
    path=$(field_of_pbs_job "${flag%=*}")
    path=${path#*:}
    case $path in
      "" | */) ;;
      *.[oe]"$number" | *.[oe]"$number".*) [[ $direct == *d* ]] || continue ;;
      *) [[ $direct == *d* || -d $path ]] || path=${path%.restart-*}.restart-$LOCKSTEP_RESTART ;;
    esac
    [ -z "$path" ] || OPTIONS+=("${flag#*=}" "$path")
  done
}

# What the job was submitted with, and ours; not what PBS sets afresh for each job.
names_to_pass() {
  local name
  { field_of_pbs_job Variable_List | tr ',' '\n' | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'
    our_settings
    [ -z "${PBS_ARRAY_INDEX:-}" ] || echo PBS_ARRAY_INDEX  # its task goes on as a job of its own
  } | sort -u | grep -vE '^(PBS_(O|ENV|JOB|NODE|TASK|MOM)|(PBS_QUEUE|TMPDIR|NCPUS|OMP_NUM_THREADS|CUDA_VISIBLE_DEVICES)$)' |
    while read -r name; do
      [ "$name" = LOCKSTEP_RUN_FILE ] && [ -z "$KEPT_RUN_FILE" ] && continue
      [ -n "${!name+set}" ] && echo "$name"
    done
}

resubmit_pbs() {
  local script=$0 names next
  if ! { [ -r "$script" ] && grep -q lockstep "$script"; }; then
    [ -n "$LOCKSTEP_SCRIPT" ] || { say "this job's own script ($0) cannot be read, so it cannot go on by itself"; return 1; }
    script=$LOCKSTEP_HOME/job_scripts/$LOCKSTEP_SCRIPT
  fi
  export LOCKSTEP_RESTART=$((${LOCKSTEP_RESTART:-0} + 1))
  pbs_options
  mapfile -t names < <(names_to_pass)
  # -C "": the script's directives have had their say
  next=$(cd "${PBS_O_WORKDIR:-.}" && with_settings "$script" "${names[@]}" | hand_in "$(pbs_command qsub)" -C "" "${OPTIONS[@]}") || return
  say "job $next goes on"
  record next "$next"
  ! may_start_again || echo "$next" >"$(next_file)"
}
