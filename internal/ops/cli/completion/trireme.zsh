#compdef trireme
# Completion of trireme for zsh: a file _trireme in $fpath, or source <(trireme completion zsh)
_trireme() {
  local line
  local -a found
  for line in "${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    if [[ $line == :files* ]]; then
      _files
      return
    fi
    [[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  _describe -t values trireme found
}
if [[ ${funcstack[1]} == _trireme ]]; then
  _trireme "$@"
else
  compdef _trireme trireme
fi
