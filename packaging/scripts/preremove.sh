#!/bin/sh
# Of the .deb (remove; upgrade …) and of the .rpm (0: removed, 1: another version comes). An upgrade leaves the daemon alone.
set -e

case "$1" in
  remove | 0) ;;
  *) exit 0 ;;
esac

# The daemon hands leadership over and stops its mysqld, in this order.
if [ -d /run/systemd/system ]; then
  systemctl stop trireme.service trireme-router.service || true
fi
if command -v systemctl >/dev/null; then
  systemctl --no-reload disable trireme.service trireme-router.service >/dev/null 2>&1 || true
fi
if [ -e /var/lib/trireme/identity.json ]; then
  echo "trireme: this host's node stays a member of its cluster, as one that is down. \`trireme remove NAME\` on another node takes it out."
fi
