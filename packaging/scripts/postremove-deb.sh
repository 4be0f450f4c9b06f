#!/bin/sh
# remove keeps everything; purge asks, and keeps it without an answer.
set -e

if [ "$1" = purge ] && [ -e /usr/share/debconf/confmodule ]; then
  . /usr/share/debconf/confmodule
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload >/dev/null 2>&1 || true
fi
[ "$1" = purge ] || exit 0

if command -v deb-systemd-helper >/dev/null; then
  deb-systemd-helper purge trireme.service trireme-router.service >/dev/null || true
fi
remove=false
if [ -n "$DEBIAN_HAS_FRONTEND" ] && [ -e /var/lib/trireme/identity.json ]; then
  db_version 2.0
  db_input high trireme/remove-data || true
  db_go || true
  db_get trireme/remove-data || true
  remove=$RET
fi
if [ "$remove" = true ]; then
  rm -rf /var/lib/trireme /etc/trireme
elif [ -e /var/lib/trireme/identity.json ]; then
  echo "trireme: data and settings are kept in /var/lib/trireme and /etc/trireme." >&2
fi
rmdir --ignore-fail-on-non-empty /var/lib/trireme /etc/trireme 2>/dev/null || true
if [ -n "$DEBIAN_HAS_FRONTEND" ]; then
  db_purge || true
fi
