# Completion of trireme for bash: eval "$(trireme completion bash)"
_trireme() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    if [[ $line == :files* ]]; then
      compopt -o default 2>/dev/null
      COMPREPLY=()
      return
    fi
    line=${line%%$'\t'*}
    # bash has cut the word at "=" and puts back what stands before it.
    [[ ${COMP_WORDS[COMP_CWORD]} == *=* ]] || line=${line#--*=}
    COMPREPLY+=("$line")
  done < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _trireme trireme
