#!/usr/bin/env bash
# Installs what the tests of test/drivers need, and only what is missing: HAProxy.
#
# What cannot be had is said and left out: its tests skip themselves, and fail where CI or TRIREME_SOAK is set. Status 0 all the same.
set -uo pipefail

say() { printf 'drivers.sh: %s\n' "$*" >&2; }

# package PROGRAM NAME…: from the distribution, when we are root.
package() {
  command -v "$1" >/dev/null && return
  [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || return 1
  say "$1 is missing: installing ${*:2}"
  { DEBIAN_FRONTEND=noninteractive apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${@:2}"; } </dev/null >&2
}

package haproxy haproxy || say "there is no haproxy: docs/balancers.md will not be tested"
exit 0
