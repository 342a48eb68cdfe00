# fish: lockstep itself lists what fits. Where it lists nothing, fish completes file names.
function __lockstep_complete
    set -l words (commandline -opc)
    $words[1] --complete $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c lockstep -a '(__lockstep_complete)'
