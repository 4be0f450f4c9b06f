#!/bin/sh
# 0: removed, 1: another version has come.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
if [ "$1" = 0 ] && [ -e /var/lib/trireme/identity.json ]; then
  echo "trireme: data and settings stay in /var/lib/trireme and /etc/trireme."
fi
