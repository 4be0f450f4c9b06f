#!/usr/bin/env bash
# Finds a MariaDB server with Galera for the benchmarks, or fetches one, and
# prints on stdout the directory that holds mariadbd and mariadb-install-db.
# Progress and errors go to stderr.
#
#   1. MARIADBD=/path/to/mariadbd, when set, is used or refused.
#      mariadb-install-db and Galera's provider are looked for beside it.
#   2. MariaDB and Galera 4 from Debian sid, unpacked below
#      ${TRIREME_CACHE:-~/.cache/trireme}: see scripts/debian.sh.
#
# Safe to run twice, and twice at once; an interrupted run leaves nothing half done.
set -euo pipefail

readonly product="MariaDB with Galera" need_mib=1200
advice=(
  "To use a MariaDB server that you already have, with its Galera provider:"
  "    MARIADBD=/path/to/mariadbd"
)

# shellcheck source=scripts/debian.sh
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

# version PROGRAM: prints its version; fails when it does not tell one.
version() {
  local text
  text=$("$1" --no-defaults --version 2>&1 | head -n 1) || true
  [[ $text =~ Ver\ ([0-9]+\.[0-9]+\.[0-9]+)-MariaDB ]] || return 1
  echo "${BASH_REMATCH[1]}"
}

build() {
  unpack "$1" mariadb-server-core mariadb-client-core galera-4
  {
    wrapper_head "$2"
    # --no-defaults and --defaults-file count only as the first argument.
    cat <<'SH'
first=
case ${1-} in
  --no-defaults | --defaults-file=* | --defaults-extra-file=* | --print-defaults)
    first=$1
    shift
    ;;
esac
set -- ${first:+"$first"} --basedir="$r/usr" --plugin-dir="$r/usr/lib/mysql/plugin" --lc-messages-dir="$r/usr/share/mariadb" --character-sets-dir="$r/usr/share/mariadb/charsets" "$@"
SH
    wrapper_exec usr/sbin/mariadbd usr/lib/mysql/private
  } >"$1/bin/mariadbd"
  {
    wrapper_head "$2"
    wrapper_exec usr/bin/my_print_defaults usr/lib/mysql/private
  } >"$1/bin/my_print_defaults"
  {
    wrapper_head "$2"
    # A script for the host's shell. It takes this folder for MariaDB's, and so starts the wrappers.
    echo 'exec "$r/usr/bin/mariadb-install-db" "$@" --force --basedir="$r/.."'
  } >"$1/bin/mariadb-install-db"
  ln -s bin "$1/sbin"
  ln -s root/usr/share "$1/share"
  ln -s root/usr/lib "$1/lib"
  chmod 755 "$1"/bin/*
  v=$(version "$1/bin/mariadbd") || die "what was fetched does not run" "${advice[@]}"
}

if [[ -n ${MARIADBD:-} ]]; then
  program=$(command -v "$MARIADBD") && version "$program" >/dev/null || die "MARIADBD=$MARIADBD is not a MariaDB server" "${advice[@]}"
else
  fetched "$cache/mariadb"
  program=$cache/mariadb/bin/mariadbd
fi
dirname "$program"
