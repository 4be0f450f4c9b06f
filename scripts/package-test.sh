#!/usr/bin/env bash
# What is in dist is installed, used, upgraded, removed and purged in a throw-away root: an overlay over this host's own, in a mount namespace, so
# that nothing here changes. With systemd-nspawn and a mysqld that root is booted then, and the service is put through its paces. Needs root, dpkg,
# rpm, lintian and systemd-analyze.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { printf 'package-test.sh: %s\n' "$*" >&2; exit 1; }
ok() { printf 'ok  %s\n' "$*"; }

outside() {
  local deb rpm
  deb=$(ls dist/trireme_*_"$(dpkg --print-architecture)".deb) rpm=$(ls dist/trireme-[0-9]*."$(uname -m)".rpm)
  [[ $(id -u) == 0 ]] || die "a root of its own needs root"
  # Tags that are known and meant are in packaging/lintian-overrides.
  lintian --allow-root --tag-display-limit 0 --fail-on error,warning "$deb" || die "lintian: see above"
  ok "lintian: no errors, no warnings"
  units
  # The two packages bring the same, but for the places that distributions have of their own, and what Debian alone wants.
  same_files "$deb" "$rpm"
  (cd dist && sha256sum --quiet -c SHA256SUMS)
  ok "checksums"
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  local mysql=
  if command -v systemd-nspawn >/dev/null; then
    mysql=$(dirname "$(scripts/mysql.sh)")
  fi
  unshare --mount --propagation private "$0" inside "$tmp" "$deb" "$rpm" "$mysql"
}

# units are what systemd understands, and how exposed it finds them.
units() {
  local dir unit level
  dir=$(mktemp -d)
  for unit in trireme trireme-router; do
    sed 's,/usr/bin/trireme,/usr/bin/true,' packaging/$unit.service >"$dir/$unit.service" # it is not installed here
    systemd-analyze verify --man=no "$dir/$unit.service" || die "systemd-analyze verify $unit"
    level=$(systemd-analyze security --offline=true --no-pager "$dir/$unit.service" | sed -n 's/.*exposure level for [^:]*: \([0-9.]*\).*/\1/p')
    awk -v n="$level" 'BEGIN { exit !(n != "" && n < 5) }' || die "systemd-analyze security: $unit is at $level"
    ok "$unit.service: understood, exposure $level of 10"
  done
  # Samples, which are in no unit folder of the package.
  for unit in packaging/examples/*; do sed 's,/usr/bin/trireme,/usr/bin/true,' "$unit" >"$dir/${unit##*/}"; done
  systemd-analyze verify --man=no "$dir"/trireme-backup* || die "systemd-analyze verify packaging/examples"
  ok "sample units: understood"
  rm -rf "$dir"
}

same_files() {
  local files='s,^\./,/,; s,^/usr/lib/systemd,/lib/systemd,; s,site-functions,vendor-completions,'
  diff <(dpkg-deb --fsys-tarfile "$1" | tar -t | sed 's,/$,,' | sed "$files" | grep -v -e lintian -e copyright -e changelog | grep -e trireme | sort) \
    <(rpm -qlp "$2" 2>/dev/null | sed "$files" | sort) || die "the packages differ"
  ok ".deb and .rpm bring the same files"
}

# inside runs in the namespace.
inside() {
  local tmp=$1 root=$1/root
  mount -t tmpfs tmpfs "$tmp"
  mkdir "$tmp"/{up,work,root}
  mount -t overlay overlay -o "lowerdir=/,upperdir=$tmp/up,workdir=$tmp/work" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mkdir -p "$root/pk"
  cp "$2" "$root/pk/new.deb"
  cp "$3" "$root/pk/new.rpm"
  cp "$0" "$root/pk/test.sh"
  # Without the mysqld in root's cache: init would find it, and refuse it since the user mysql cannot reach it.
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TRIREME_CACHE=/nonexistent DEBIAN_FRONTEND=noninteractive \
    bash /pk/test.sh chrooted
  if [[ -z $4 ]]; then
    echo "not booted: systemd-nspawn is not installed (package systemd-container)"
    return
  fi
  umount -R "$root/proc" "$root/dev"
  boot "$root" "$4"
}

# boot starts systemd as process 1 of the root, with a network of its own, and has the service live through what a host does to it.
boot() {
  local root=$1 pid
  mkdir "$root/opt/mysql"
  mount --bind "$2" "$root/opt/mysql"
  rm -rf "$root"/etc/trireme "$root"/var/lib/trireme "$root/lib/systemd/system/mysql.service"
  : >"$root/etc/machine-id"
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive bash /pk/test.sh before-boot >"$root/pk/out" 2>&1 ||
    { cat "$root/pk/out"; die "before the boot"; }
  systemd-nspawn --quiet -D "$root" --boot --register=no --keep-unit --private-network --console=pipe </dev/null >"$root/pk/console" 2>&1 &
  nspawn=$!
  # It ends with this script, however that ends.
  trap 'kill -TERM $nspawn 2>/dev/null; sleep 1; kill -KILL "${pid:-$nspawn}" 2>/dev/null; wait' EXIT
  for _ in $(seq 120); do
    pid=$(pgrep -P "$(pgrep -P $nspawn | head -n 1)" 2>/dev/null | head -n 1) && [[ -n $pid ]] && break
    sleep 0.5
  done
  [[ -n ${pid:-} ]] || { cat "$root/pk/console"; die "it does not boot"; }
  nsenter -t "$pid" -m -u -i -n -p -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root bash /pk/test.sh booted
}

before_boot() {
  dpkg -i /pk/new.deb
  rm -rf /root/.config/trireme
  trireme init --name n1 --host 127.0.0.1 --mysqld /opt/mysql/bin/mysqld
  # A watchdog that can be waited for.
  mkdir -p /etc/systemd/system/trireme.service.d
  printf '[Service]\nWatchdogSec=6\nTimeoutAbortSec=2\n' >/etc/systemd/system/trireme.service.d/test.conf
  systemctl mask systemd-networkd-wait-online.service systemd-udevd.service getty.target console-getty.service
}

# until_true LIMIT WHAT COMMAND...: within so many seconds.
until_true() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || { systemctl status trireme --no-pager -n 40 >&2; die "$what"; }
    sleep 0.5
  done
}

leads() { trireme status 2>/dev/null | grep -q ' leader  *healthy '; }
property() { systemctl show -P "$1" trireme; }
status_field() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"; }
restarts() { [[ $(property NRestarts) -ge $1 ]] && leads; }

booted() {
  local daemon mysqld
  until_true 120 "systemd does not answer" systemctl show trireme
  until_true 180 "the service does not start with the host" systemctl is-active --quiet trireme
  until_true 60 "no node leads" leads
  daemon=$(property MainPID) mysqld=$(pgrep -u mysql | head -n 1)
  [[ $(property StatusText) == *"writes are open"* ]] || die "the status is: $(property StatusText)"
  # The sandbox is there, and mysqld in it is nobody.
  [[ $(status_field "$daemon" Seccomp) == 2 && $(status_field "$mysqld" Seccomp) == 2 ]] || die "system calls are not filtered"
  [[ $(status_field "$daemon" CapBnd) != 000001ffffffffff && $(status_field "$mysqld" CapEff) == 0000000000000000 ]] || die "there are capabilities to spare"
  nsenter -t "$daemon" -m -- touch /usr/bin/x 2>/dev/null && die "the file system can be written to"
  ok "booted: ready, sandboxed, mysqld as mysql without a capability: $(property StatusText)"

  kill -9 "$mysqld"
  until_true 60 "mysqld's death is not healed" eval 'leads && [[ $(pgrep -u mysql | head -n 1) != '"$mysqld"' ]]'
  [[ $(property NRestarts) == 0 && $(property MainPID) == "$daemon" ]] || die "the unit was started again for a mysqld"
  ok "mysqld killed: the daemon stays and brings it back"

  kill -9 "$daemon"
  until_true 60 "the daemon's death is not healed" restarts 1
  ok "daemon killed: started again"

  daemon=$(property MainPID)
  kill -STOP "$daemon"
  until_true 90 "the watchdog does not notice a stopped daemon" restarts 2
  ok "daemon stopped: the watchdog has started another"

  systemctl stop trireme
  [[ $(property Result) == success && $(property ExecMainStatus) == 0 ]] || die "a stop is: $(property Result)"
  pgrep -u mysql && die "mysqld is left"
  tail -n 20 /var/lib/trireme/mysql/log/mysqld.err | grep -q 'Shutdown complete' || die "mysqld was not stopped politely"
  ok "stopped: mysqld politely, nothing is left"
  removed
}

both_healthy() { [[ $(trireme status 2>/dev/null | grep -c ' healthy ') == 2 ]]; }
unit_failed() { [[ $(property ActiveState) == failed ]]; }

# removed: a node that was taken out of its cluster ends, and systemd leaves it alone.
removed() {
  local ports=(--peer-port 17306 --api-port 18008 --rw-port 16446 --ro-port 16447 --split-port 0 --stream-port 0 --mysql-port 13306) restarts other
  systemctl start trireme
  until_true 60 "it does not start again" leads
  trireme add n2 --json | sed -n 's/.*"token": *"\([^"]*\)".*/\1/p' |
    trireme join - --name n2 --dir /var/lib/n2 --host 127.0.0.1 --mysqld /opt/mysql/bin/mysqld "${ports[@]}" >/pk/out || { cat /pk/out >&2; die "join"; }
  trireme node --config /var/lib/n2/trireme.toml >/pk/n2.log 2>&1 &
  other=$!
  until_true 120 "the second node is not healthy" both_healthy
  restarts=$(property NRestarts)
  until_true 120 "n1 is not removed" trireme remove n1 --api 127.0.0.1:18008
  until_true 60 "the unit of a removed node does not end" unit_failed
  [[ $(property ExecMainStatus) == 4 && $(property NRestarts) == "$restarts" ]] ||
    die "the unit of a removed node: exit code $(property ExecMainStatus), started again $(property NRestarts) times, before $restarts"
  pgrep -u mysql && die "mysqld of a removed node is left"
  ok "removed: exit code 4, the unit stays $(property ActiveState) ($(property Result)) after $(property NRestarts) restarts"
  kill "$other"
}

# said FILE TEXT: a message for the operator is there.
said() { grep -qF -- "$2" "$1" || { cat "$1" >&2; die "nothing says: $2"; }; }
absent() { [[ ! -e $1 ]] || die "$1 is there"; }
mode() { [[ $(stat -c '%a %U' "$2") == "$1" ]] || die "$2 is $(stat -c '%a %U' "$2"), not $1"; }

chrooted() {
  cd /pk
  userdel mysql 2>/dev/null || true
  rm -rf /etc/trireme /var/lib/trireme
  # A distribution's server, with an AppArmor profile.
  mkdir -p /etc/apparmor.d /lib/systemd/system
  printf '[Service]\nExecStart=/bin/true\n' >/lib/systemd/system/mysql.service
  touch /etc/apparmor.d/usr.sbin.mysqld

  dpkg -i new.deb >out 2>&1 || { cat out; die "dpkg -i"; }
  said out "mysql.service of this host is not touched"
  said out "trireme adopt --dry-run"
  said out "apparmor_parser"
  id mysql >/dev/null || die "no user mysql"
  mode "711 root" /var/lib/trireme
  [[ -L /etc/systemd/system/multi-user.target.wants/trireme.service ]] || die "the service is not enabled"
  absent /etc/systemd/system/multi-user.target.wants/trireme-router.service
  zcat /usr/share/man/man1/trireme-switchover.1.gz | grep -q '^.SH OPTIONS' || die "no man page"
  bash -c 'source /usr/share/bash-completion/completions/trireme; complete -p trireme' >/dev/null
  systemd-analyze verify --man=no /lib/systemd/system/trireme.service /lib/systemd/system/trireme-router.service
  ok "install: files, user, enabled and not started; the distribution's server is named and left alone"

  trireme init --name n1 --host 127.0.0.1 >out
  said out "systemctl enable --now trireme"
  grep -q '^os_user = "mysql"' /etc/trireme/trireme.toml || die "mysqld would run as root"
  absent /var/lib/trireme/trireme.toml
  mode "711 root" /var/lib/trireme
  mode "600 root" /var/lib/trireme/secrets.json
  trireme config check >/dev/null
  trireme vip release # what ExecStopPost runs, without virtual addresses
  sum=$(sha256sum /etc/trireme/trireme.toml /var/lib/trireme/*.json)
  ok "init: settings in /etc/trireme, mysqld as mysql"

  dpkg -i new.deb >out 2>&1
  said out "Restart one node after the other"
  [[ $sum == "$(sha256sum /etc/trireme/trireme.toml /var/lib/trireme/*.json)" ]] || die "an upgrade has changed the node"
  ok "upgrade: nothing is restarted, the node is as it was"

  dpkg -r trireme >out 2>&1
  said out "stays a member of its cluster"
  absent /usr/bin/trireme
  [[ $sum == "$(sha256sum /etc/trireme/trireme.toml /var/lib/trireme/*.json)" ]] || die "a removal has changed the node"
  dpkg -P trireme >out 2>&1
  said out "are kept"
  [[ $sum == "$(sha256sum /etc/trireme/trireme.toml /var/lib/trireme/*.json)" ]] || die "a purge that was not confirmed has changed the node"
  absent /etc/systemd/system/multi-user.target.wants/trireme.service
  ok "remove, and purge without an answer: the node stays"

  dpkg -i new.deb >out 2>&1
  mode "711 root" /var/lib/trireme
  echo "trireme trireme/remove-data boolean true" | debconf-set-selections
  dpkg -P trireme >out 2>&1 || { cat out; die "purge"; }
  absent /var/lib/trireme
  absent /etc/trireme
  ok "purge with a yes: all is gone"

  rpms
}

# rpms: the same scripts, by another package manager.
rpms() {
  local db=(--dbpath /pk/rpmdb)
  mkdir rpmdb
  rpm "${db[@]}" --initdb
  rpm "${db[@]}" -i --nodeps new.rpm >out 2>&1 || { cat out; die "rpm -i"; }
  said out "mysql.service of this host is not touched"
  mode "711 root" /var/lib/trireme
  rm -rf /root/.config/trireme # init keeps the credential of another cluster of this name
  trireme init --name n1 --host 127.0.0.1 >/dev/null
  rpm "${db[@]}" -U --force --nodeps new.rpm >out 2>&1
  said out "Restart one node after the other"
  [[ -x /usr/bin/trireme ]] || die "an upgrade has removed the program"
  rpm "${db[@]}" -e trireme >out 2>&1
  said out "data and settings stay"
  absent /usr/bin/trireme
  [[ -e /var/lib/trireme/identity.json && -e /etc/trireme/trireme.toml ]] || die "an .rpm's removal has removed the node"
  ok ".rpm: install, upgrade, remove; the node stays"
}

case ${1:-} in
  inside) shift; inside "$@" ;;
  chrooted) chrooted ;;
  before-boot) before_boot ;;
  booted) booted ;;
  *) outside ;;
esac
