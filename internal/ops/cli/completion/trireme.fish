# Completion of trireme for fish: trireme completion fish | source
function __trireme_complete
    set -l words (commandline -opc)
    set -l found ($words[1] complete -- $words[2..-1] (commandline -ct) 2>/dev/null)
    if string match -q ':files*' -- $found[1]
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $found
    end
end
complete -c trireme -f -a '(__trireme_complete)'
