#!/usr/bin/env bash
# Finds a MySQL server for Trireme, or fetches one, and prints on stdout the
# directory that holds mysqld, mysql, mysqldump, mysqlbinlog, mysqladmin, ...
# Progress and errors go to stderr.
#
#   1. MYSQLD=/path/to/mysqld, when set, is used or refused, never replaced.
#   2. mysqld on PATH, when it is MySQL >= 8.0.26. MariaDB is not MySQL here.
#   3. MySQL 9.7 from Debian sid, unpacked below ${TRIREME_CACHE:-~/.cache/trireme}.
#      Needs no root and installs nothing: a private apt root resolves and
#      downloads the packages (apt checks signatures and hashes), and every
#      program runs through the unpacked root's own loader and libraries, so
#      the host's libc does not matter.
#
# Safe to run twice, and twice at once; an interrupted run leaves nothing half done.
#
#   TRIREME_CACHE          where to keep it (default ~/.cache/trireme)
#   TRIREME_DEBIAN_MIRROR  Debian mirror to use instead of the host's own
#   MYSQLD                 use this mysqld
set -euo pipefail

readonly min_version=8.0.26
readonly tested_series=9.7
readonly product="MySQL server" need_mib=1200
readonly tools="mysqld mysql mysqladmin mysqlbinlog mysqldump mysqlslap mysqlcheck mysqlimport mysqlshow my_print_defaults mysql_config_editor mysql_tzinfo_to_sql"

advice=(
  "To use a MySQL server you already have (>= $min_version, not MariaDB):"
  "    MYSQLD=/path/to/mysqld make demo"
  "The vendor's generic Linux tarball can be unpacked anywhere, without root."
)

# shellcheck source=scripts/debian.sh
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

# verdict MYSQLD: prints "ok VERSION", "mariadb TEXT", "old VERSION" or "broken TEXT".
verdict() {
  local text version
  text=$("$1" --no-defaults --version 2>&1 | head -n 1) || true
  if [[ $text == *MariaDB* ]]; then
    echo "mariadb $text"
  elif [[ $text =~ Ver\ ([0-9]+\.[0-9]+\.[0-9]+) ]]; then
    version=${BASH_REMATCH[1]}
    if [[ $(printf '%s\n%s\n' "$min_version" "$version" | sort -V | head -n 1) == "$min_version" ]]; then
      echo "ok $version"
    else
      echo "old $version"
    fi
  else
    echo "broken $text"
  fi
}

note_if_untested() {
  [[ $1 == "$tested_series".* ]] || say "note: MySQL $1 is accepted, but Trireme is tested with $tested_series"
}

# bin_dir_of MYSQLD: a directory that holds mysqld and its client programs.
# Distributions put mysqld in sbin and the clients in bin; then a directory of
# wrappers that exec each of them is made (exec, not a link: mysqld finds its
# own messages and plugins from the path it is started by).
bin_dir_of() {
  local mysqld=$1 dir tool found out tmp
  dir=$(dirname "$mysqld")
  if [[ -x $dir/mysql && -x $dir/mysqlbinlog && -x $dir/mysqldump ]]; then
    echo "$dir"
    return
  fi
  out=$cache/mysql-host-$(printf %s "$mysqld" | cksum | cut -d ' ' -f 1)
  tmp=$(mktemp -d "$cache/.host.XXXXXX")
  mkdir "$tmp/bin"
  for tool in $tools; do
    found=
    if [[ $tool == mysqld ]]; then
      found=$mysqld
    elif [[ -x $dir/$tool ]]; then
      found=$dir/$tool
    elif [[ -x $dir/../bin/$tool ]]; then
      found=$(readlink -f "$dir/../bin/$tool")
    else
      found=$(command -v "$tool" || true)
    fi
    [[ -n $found ]] || continue
    printf '#!/bin/sh\nexec %q "$@"\n' "$found" >"$tmp/bin/$tool"
    chmod 755 "$tmp/bin/$tool"
  done
  chmod 755 "$tmp"
  rm -rf "$out"
  mv "$tmp" "$out"
  echo "$out/bin"
}

# host_mysql: prints the bin directory and succeeds when MYSQLD or PATH offers a usable server.
host_mysql() {
  local mysqld v
  if [[ -n ${MYSQLD:-} ]]; then
    mysqld=$(command -v "$MYSQLD" || true)
    [[ -n $mysqld && -x $mysqld ]] || die "MYSQLD=$MYSQLD is not an executable file" "${advice[@]}"
    mysqld=$(cd "$(dirname "$mysqld")" && pwd)/$(basename "$mysqld")
    v=$(verdict "$mysqld")
    case $v in
      ok\ *) note_if_untested "${v#ok }" ;;
      mariadb\ *) die "MYSQLD=$MYSQLD is MariaDB (${v#mariadb })" "MariaDB has other GTIDs and another semi-sync plugin: Trireme cannot run it." "${advice[@]}" ;;
      old\ *) die "MYSQLD=$MYSQLD is MySQL ${v#old }, older than $min_version" "${advice[@]}" ;;
      *) die "MYSQLD=$MYSQLD does not tell a MySQL version: ${v#broken }" "${advice[@]}" ;;
    esac
    bin_dir_of "$mysqld"
    return
  fi
  while read -r mysqld; do
    v=$(verdict "$mysqld")
    case $v in
      ok\ *)
        note_if_untested "${v#ok }"
        bin_dir_of "$mysqld"
        return
        ;;
      mariadb\ *) say "$mysqld is MariaDB, which Trireme cannot run; looking for MySQL elsewhere" ;;
      old\ *) say "$mysqld is MySQL ${v#old }, older than $min_version; looking elsewhere" ;;
      *) say "$mysqld does not start (${v#broken }); looking elsewhere" ;;
    esac
  done < <(PATH=$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec:/usr/local/mysql/bin type -aP mysqld | awk '!seen[$0]++')
  return 1
}

# wrappers DIR FINAL: DIR/bin/* exec the programs of DIR/root through its own loader.
wrappers() {
  local dir=$1 final=$2 tool prog
  for tool in $tools; do
    for prog in usr/sbin/$tool usr/bin/$tool; do
      [[ -x $dir/root/$prog ]] || continue
      {
        wrapper_head "$final"
        if [[ $tool == mysqld ]]; then
          # --no-defaults and --defaults-file count only as the first argument.
          cat <<'SH'
case ${1-} in
  --no-defaults | --defaults-file=* | --defaults-extra-file=* | --print-defaults)
    first=$1
    shift
    set -- "$first" --basedir="$r/usr" --plugin-dir="$r/usr/lib/mysql/plugin" --lc-messages-dir="$r/usr/share/mysql" --character-sets-dir="$r/usr/share/mysql/charsets" "$@"
    ;;
  *)
    set -- --basedir="$r/usr" --plugin-dir="$r/usr/lib/mysql/plugin" --lc-messages-dir="$r/usr/share/mysql" --character-sets-dir="$r/usr/share/mysql/charsets" "$@"
    ;;
esac
SH
        fi
        wrapper_exec "$prog" usr/lib/mysql/private
      } >"$dir/bin/$tool"
      chmod 755 "$dir/bin/$tool"
      break
    done
  done
}

build() {
  unpack "$1" mysql-server-core mysql-client-core
  wrappers "$1" "$2"
  v=$(verdict "$1/bin/mysqld")
  [[ $v == ok\ * ]] || die "what was fetched does not run: $v" "${advice[@]}"
  v=${v#ok }
  note_if_untested "$v"
}

if dir=$(host_mysql); then
  echo "$dir"
  exit
elif [[ -n ${MYSQLD:-} ]]; then
  exit 1
fi

fetched "$cache/mysql-$tested_series"
echo "$cache/mysql-$tested_series/bin"
