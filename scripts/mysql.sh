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
# Two-digit umasks of root shells would make the cache unreadable for others.
umask 022

readonly min_version=8.0.26
readonly tested_series=9.7
readonly need_mib=1200
readonly tools="mysqld mysql mysqladmin mysqlbinlog mysqldump mysqlslap mysqlcheck mysqlimport mysqlshow my_print_defaults mysql_config_editor mysql_tzinfo_to_sql"

say() { printf 'mysql.sh: %s\n' "$*" >&2; }

die() {
  say "error: $1"
  shift
  printf '  %s\n' "$@" >&2
  exit 1
}

advice=(
  "To use a MySQL server you already have (>= $min_version, not MariaDB):"
  "    MYSQLD=/path/to/mysqld make demo"
  "The vendor's generic Linux tarball can be unpacked anywhere, without root."
)

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

keyring() {
  local k
  for k in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp; do
    [[ -r $k ]] && { echo "$k"; return; }
  done
  return 1
}

# mirrors: candidate Debian mirrors, one a line, from the host's own apt sources.
mirrors() {
  if [[ -n ${TRIREME_DEBIAN_MIRROR:-} ]]; then
    echo "$TRIREME_DEBIAN_MIRROR"
    return
  fi
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
    awk '$3 == "main" && $2 !~ /security|\// && !seen[$1]++ { print ($1 ~ /debian\/?$/ ? 0 : 1), $1 }' |
    sort -s -k1,1n | cut -d ' ' -f 2
}

# private_apt DIR MIRROR KEYRING: lays out an apt root of its own in DIR.
private_apt() {
  local r=$1
  mkdir -p "$r"/etc/apt/{apt.conf.d,preferences.d,trusted.gpg.d,sources.list.d} \
    "$r"/var/lib/apt/lists/partial "$r"/var/cache/apt/archives/partial "$r"/var/lib/dpkg
  : >"$r/var/lib/dpkg/status"
  echo "deb [signed-by=$3] $2 sid main" >"$r/etc/apt/sources.list"
  {
    # Proxies of the host apply here too.
    apt-config dump --format '%f "%v";%n' Acquire 2>/dev/null | grep -iE '^Acquire::(http|https|ftp)::(proxy|proxy-auto-detect)' || true
    cat <<CONF
Dir "$r";
Dir::State "$r/var/lib/apt";
Dir::State::status "$r/var/lib/dpkg/status";
Dir::Cache "$r/var/cache/apt";
Dir::Etc "$r/etc/apt";
Dir::Bin::methods "$(apt-config dump --format '%v%n' Dir::Bin::methods 2>/dev/null | head -n 1 | grep . || echo /usr/lib/apt/methods)";
APT::Install-Recommends "false";
APT::Sandbox::User "";
APT::Get::Assume-Yes "true";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
# A mirror's sid index may be older than its validity; the signature is checked all the same.
Acquire::Check-Valid-Until "false";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
CONF
  } >"$r/apt.conf"
}

# download DIR: fills DIR/var/cache/apt/archives from the first mirror that serves sid.
download() {
  local r=$1 key mirror list
  key=$(keyring) || die "no Debian archive keyring on this machine (package debian-archive-keyring)" "${advice[@]}"
  list=$(mirrors)
  [[ -n $list ]] || die "no Debian mirror in this machine's apt sources" "Name one: TRIREME_DEBIAN_MIRROR=http://<mirror>/debian" "${advice[@]}"
  while read -r mirror; do
    rm -rf "$r"
    private_apt "$r" "$mirror" "$key"
    say "asking $mirror for MySQL $tested_series (Debian sid)"
    if APT_CONFIG=$r/apt.conf apt-get -q -o APT::Update::Error-Mode=any update </dev/null >&2 &&
      APT_CONFIG=$r/apt.conf apt-get -q install --download-only mysql-server-core mysql-client-core </dev/null >&2; then
      return
    fi
    say "$mirror did not deliver"
  done <<<"$list"
  die "MySQL could not be fetched from any of: $(tr '\n' ' ' <<<"$list")" \
    "Check the network or proxy, or name a mirror: TRIREME_DEBIAN_MIRROR=http://<mirror>/debian" "${advice[@]}"
}

# wrappers DIR FINAL: DIR/bin/* exec the programs of DIR/root through its own loader.
# exec keeps the pid, so signals, wait and PR_SET_PDEATHSIG reach the program itself.
wrappers() {
  local dir=$1 final=$2 loader libs tool prog
  loader=$(cd "$dir/root" && find . -name 'ld-linux*.so.*' -path '*lib*' | sort | head -n 1)
  libs=$(cd "$dir/root" && find . -name 'libc.so.6' | head -n 1)
  [[ -n $loader && -n $libs ]] || die "the unpacked packages hold no loader" "${advice[@]}"
  loader=${loader#./}
  libs=$(dirname "${libs#./}")
  mkdir -p "$dir/bin"
  for tool in $tools; do
    for prog in usr/sbin/$tool usr/bin/$tool; do
      [[ -x $dir/root/$prog ]] || continue
      {
        echo '#!/bin/sh'
        # Works from wherever the folder is moved to, and through a link from elsewhere.
        printf 'r=${0%%/*}/../root\n[ -d "$r/usr" ] || r=%q\n' "$final/root"
        # mysqld leaves the folder it was started in.
        echo 'case $r in /*) ;; *) r=$PWD/$r ;; esac'
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
        printf 'exec "$r/%s" --library-path "$r/%s:$r/usr/lib/mysql/private" "$r/%s" "$@"\n' "$loader" "$libs" "$prog"
      } >"$dir/bin/$tool"
      chmod 755 "$dir/bin/$tool"
      break
    done
  done
}

# fetch FINAL: brings MySQL to FINAL, whole or not at all.
fetch() {
  local final=$1 deb n=0 v free_mib
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    die "no mysqld on PATH, and apt is not here to fetch one" "${advice[@]}"
  free_mib=$(df -Pm "$cache" | awk 'NR == 2 { print $4 }')
  [[ $free_mib -ge $need_mib ]] || die "$cache has $free_mib MiB free; fetching MySQL needs $need_mib MiB" "Set TRIREME_CACHE to a folder on a larger disk." "${advice[@]}"
  say "no MySQL >= $min_version on PATH: fetching it into $final (about 65 MB, once)"
  tmp=$(mktemp -d "$cache/.mysql.XXXXXX")
  chmod 755 "$tmp"
  download "$tmp/apt"
  mkdir "$tmp/new" "$tmp/new/root"
  for deb in "$tmp"/apt/var/cache/apt/archives/*.deb; do
    dpkg-deb -x "$deb" "$tmp/new/root"
    n=$((n + 1))
  done
  say "unpacked $n packages"
  wrappers "$tmp/new" "$final"
  v=$(verdict "$tmp/new/bin/mysqld")
  [[ $v == ok\ * ]] || die "what was fetched does not run: $v" "${advice[@]}"
  note_if_untested "${v#ok }"
  echo "${v#ok }" >"$tmp/new/VERSION"
  rm -rf "$final"
  mv "$tmp/new" "$final"
  say "MySQL ${v#ok } is in $final"
}

cache=${TRIREME_CACHE:-$HOME/.cache/trireme}
mkdir -p "$cache" || die "cannot create $cache" "Set TRIREME_CACHE to a folder you may write to."
cache=$(cd "$cache" && pwd)
tmp=
trap '[[ -z $tmp ]] || rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if dir=$(host_mysql); then
  echo "$dir"
  exit
elif [[ -n ${MYSQLD:-} ]]; then
  exit 1
fi

final=$cache/mysql-$tested_series
if [[ ! -e $final/VERSION ]]; then
  exec 9>"$cache/.lock"
  if ! flock -n 9; then
    say "another run is fetching MySQL; waiting for it"
    flock -w 1800 9 || die "the other run did not finish within 30 minutes" "It holds $cache/.lock."
  fi
  # Whoever held the lock before may have died, or may have done the work.
  rm -rf "$cache"/.mysql.?*
  [[ -e $final/VERSION ]] || fetch "$final"
fi
echo "$final/bin"
