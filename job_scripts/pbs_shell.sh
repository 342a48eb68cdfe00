#!/bin/bash -l
# For qsub -S FOLDER/job_scripts/pbs_shell.sh: a login shell that outlives qsig. PBS signals a job's whole session; its
# usual shell dies of SIGUSR1 and SIGTERM, and PBS then kills the job within two seconds.
trap : USR1 USR2 TERM
read -r script # for a shell: brackets of an array's task have backslashes
eval "$script"
exit $?
