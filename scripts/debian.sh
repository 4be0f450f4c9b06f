# Sourced by scripts that fetch a program of Debian sid without root: nothing is
# installed, a private apt root resolves and downloads the packages (apt checks
# signatures and hashes), and the programs run through the unpacked root's own
# loader and libraries, so the host's libc does not matter.
#
# Whoever sources this sets product (what is fetched, in words), need_mib (free
# space that fetching takes) and advice (lines that follow an error).
#
#   TRIREME_CACHE          where to keep it (default ~/.cache/trireme)
#   TRIREME_DEBIAN_MIRROR  Debian mirror to use instead of the host's own
# shellcheck shell=bash
set -euo pipefail
# Two-digit umasks of root shells would make the cache unreadable for others.
umask 022

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

die() {
  say "error: $1"
  shift
  printf '  %s\n' "$@" >&2
  exit 1
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

# download DIR PACKAGE...: fills DIR/var/cache/apt/archives from the first mirror that serves sid.
download() {
  local r=$1 key mirror list
  shift
  key=$(keyring) || die "no Debian archive keyring on this machine (package debian-archive-keyring)" "${advice[@]}"
  list=$(mirrors)
  [[ -n $list ]] || die "no Debian mirror in this machine's apt sources" "Name one: TRIREME_DEBIAN_MIRROR=http://<mirror>/debian" "${advice[@]}"
  while read -r mirror; do
    rm -rf "$r"
    private_apt "$r" "$mirror" "$key"
    say "asking $mirror for $product (Debian sid)"
    if APT_CONFIG=$r/apt.conf apt-get -q -o APT::Update::Error-Mode=any update </dev/null >&2 &&
      APT_CONFIG=$r/apt.conf apt-get -q install --download-only "$@" </dev/null >&2; then
      return
    fi
    say "$mirror did not deliver"
  done <<<"$list"
  die "$product could not be fetched from any of: $(tr '\n' ' ' <<<"$list")" \
    "Check the network or proxy, or name a mirror: TRIREME_DEBIAN_MIRROR=http://<mirror>/debian" "${advice[@]}"
}

# unpack FOLDER PACKAGE...: downloads packages and all that they need into FOLDER/root.
# Sets loader and libs: of that root, relative to it.
unpack() {
  local dir=$1 deb n=0
  shift
  download "$tmp/apt" "$@"
  mkdir "$dir" "$dir/root" "$dir/bin"
  for deb in "$tmp"/apt/var/cache/apt/archives/*.deb; do
    dpkg-deb -x "$deb" "$dir/root"
    n=$((n + 1))
  done
  say "unpacked $n packages"
  loader=$(cd "$dir/root" && find . -name 'ld-linux*.so.*' -path '*lib*' | sort | head -n 1)
  libs=$(cd "$dir/root" && find . -name 'libc.so.6' | head -n 1)
  [[ -n $loader && -n $libs ]] || die "the unpacked packages hold no loader" "${advice[@]}"
  loader=${loader#./}
  libs=$(dirname "${libs#./}")
}

# wrapper_head FINAL: the first lines of a wrapper script, which leave in $r the unpacked root.
wrapper_head() {
  echo '#!/bin/sh'
  # Works from wherever the folder is moved to, and through a link from elsewhere.
  printf 'r=${0%%/*}/../root\n[ -d "$r/usr" ] || r=%q\n' "$1/root"
  # Servers leave the folder they were started in.
  echo 'case $r in /*) ;; *) r=$PWD/$r ;; esac'
}

# wrapper_exec PROGRAM LIBRARIES: the last line, for a program and a folder with libraries of its own, both relative to the root.
# exec keeps the pid, so signals, wait and PR_SET_PDEATHSIG reach the program itself.
wrapper_exec() {
  printf 'exec "$r/%s" --library-path "$r/%s:$r/%s" "$r/%s" "$@"\n' "$loader" "$libs" "$2" "$1"
}

# fetched FINAL: brings the product to FINAL, whole or not at all, unless it is there. `build NEW FINAL` makes the folder NEW, which is then
# moved to FINAL, and leaves the version in v.
fetched() {
  local final=$1 free_mib
  [[ ! -e $final/VERSION ]] || return 0
  exec 9>"$cache/.lock"
  if ! flock -n 9; then
    say "another run is fetching; waiting for it"
    flock -w 1800 9 || die "the other run did not finish within 30 minutes" "It holds $cache/.lock."
  fi
  # Whoever held the lock before may have died, or may have done the work.
  rm -rf "$cache"/.mysql.?*
  if [[ ! -e $final/VERSION ]]; then
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
      die "no $product on PATH, and apt is not here to fetch it" "${advice[@]}"
    free_mib=$(df -Pm "$cache" | awk 'NR == 2 { print $4 }')
    [[ $free_mib -ge $need_mib ]] || die "$cache has $free_mib MiB free; fetching $product needs $need_mib MiB" "Set TRIREME_CACHE to a folder on a larger disk." "${advice[@]}"
    say "no $product on this machine: fetching it into $final, once"
    tmp=$(mktemp -d "$cache/.mysql.XXXXXX")
    chmod 755 "$tmp"
    build "$tmp/new" "$final"
    echo "$v" >"$tmp/new/VERSION"
    rm -rf "$final"
    mv "$tmp/new" "$final"
    say "$product $v is in $final"
  fi
  exec 9>&-
}

cache=${TRIREME_CACHE:-$HOME/.cache/trireme}
mkdir -p "$cache" || die "cannot create $cache" "Set TRIREME_CACHE to a folder you may write to."
cache=$(cd "$cache" && pwd)
tmp=
trap '[[ -z $tmp ]] || rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
