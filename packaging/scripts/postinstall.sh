#!/bin/sh
# Of the .deb (configure [OLD VERSION]) and of the .rpm (1: new, 2: upgrade). Nothing is started, stopped or taken over here.
set -e

case "$1" in
  configure) old=$2 ;;
  1) old= ;;
  2) old=yes ;;
  *) exit 0 ;;
esac

# mysqld runs as this user, which MySQL's own packages make as well (mysql.os_user); the daemon is root.
getent group mysql >/dev/null || groupadd --system mysql
getent passwd mysql >/dev/null ||
  useradd --system --gid mysql --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin --comment "MySQL server" mysql

chmod 0711 /var/lib/trireme
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi

if [ -n "$old" ]; then
  # Daemons that all restart at once would be an outage: the operator decides when.
  echo "trireme: a running daemon keeps its old version. Restart one node after the other, the leader last:"
  echo "trireme:   systemctl restart trireme && trireme status"
  exit 0
fi

# The unit starts nothing before there is a node (ConditionPathExists).
if command -v deb-systemd-helper >/dev/null; then
  deb-systemd-helper enable trireme.service >/dev/null || true
elif command -v systemctl >/dev/null; then
  systemctl preset trireme.service >/dev/null 2>&1 || true
fi

echo "trireme: make the first node with \`trireme init\`, another one with \`trireme join\`, then systemctl enable --now trireme."
echo "trireme: each step is in /usr/share/doc/trireme/docs/ops/first-cluster.md"
for unit in mysql mysqld mariadb; do
  for dir in /etc/systemd/system /usr/lib/systemd/system /lib/systemd/system; do
    [ -e "$dir/$unit.service" ] || continue
    echo "trireme: $unit.service of this host is not touched. Its server becomes a node with its data where it stands, if you say so:"
    echo "trireme:   trireme adopt --dry-run --socket /run/mysqld/mysqld.sock      (it changes nothing; see man trireme-adopt)"
    echo "trireme: For an empty node next to it, give other ports: trireme init --mysql-port 3316."
    break 2
  done
done
if [ -e /etc/apparmor.d/usr.sbin.mysqld ] && ! grep -qs trireme /etc/apparmor.d/local/usr.sbin.mysqld; then
  echo "trireme: AppArmor lets mysqld into its own directories only. Before the first start:"
  echo "trireme:   echo '/var/lib/trireme/** rwk,' >>/etc/apparmor.d/local/usr.sbin.mysqld && apparmor_parser -r /etc/apparmor.d/usr.sbin.mysqld"
fi
