#!/usr/bin/env bash
# Process 1 of a container. The first start makes the node: a new cluster on the node that is named so, a join on any other one. Then it becomes
# the daemon.
#
#   TRIREME_CLUSTER     name of the cluster (default main)
#   TRIREME_FIRST       name of the node that makes it
#   TRIREME_NAME        this node's (default: the host's)
#   TRIREME_HOST        by which the others reach it (default: the same)
#   TRIREME_ROLE        voter, logger or learner (default voter; of those that join)
#   TRIREME_OPERATOR    file with the operator's credential: shared with the other nodes (default /run/trireme/credential)
#   TRIREME_SECRET      Kubernetes: the Secret that the credential is put into; TRIREME_OPERATOR is where it is mounted
set -euo pipefail
umask 077

dir=${TRIREME_CONFIG%/*}
cluster=${TRIREME_CLUSTER:-main}
name=${TRIREME_NAME:-$(hostname)}
host=${TRIREME_HOST:-$name}
role=${TRIREME_ROLE:-voter}
operator=${TRIREME_OPERATOR:-/run/trireme/credential}
own=$XDG_CONFIG_HOME/trireme/$cluster

say() { printf 'entrypoint: %s\n' "$*" >&2; }

# publish gives the other nodes what they need to join. It is done again until it has worked once.
publish() {
  [[ ! -s $operator && -s $own ]] || return 0
  if [[ -z ${TRIREME_SECRET:-} ]]; then
    cp "$own" "$operator.new" && mv "$operator.new" "$operator"
    return
  fi
  local account=/var/run/secrets/kubernetes.io/serviceaccount
  # Neither the token nor the credential is an argument, which every process sees.
  printf '{"data":{"credential":"%s"}}' "$(base64 -w 0 <"$own")" |
    curl --fail --silent --show-error --output /dev/null --retry 10 --retry-all-errors --cacert "$account/ca.crt" \
      --header @<(printf 'Authorization: Bearer %s' "$(<"$account/token")") --header 'Content-Type: application/merge-patch+json' \
      --request PATCH --data @- \
      "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/$(<"$account/namespace")/secrets/$TRIREME_SECRET"
}

# join asks for an invitation and follows it, for as long as it takes the cluster to be there.
join() {
  local token
  until [[ -s $operator ]]; do
    say "waiting for ${TRIREME_FIRST:-the first node} to make cluster $cluster ($operator)"
    sleep 2
  done
  mkdir -p "${own%/*}"
  cat "$operator" >"$own"
  until token=$(trireme add "$name" --role "$role" --cluster "$cluster" --json | sed -n 's/^ *"token": "\([^"]*\)".*/\1/p') && [[ -n $token ]]; do
    say "the cluster does not invite $name yet; trying again"
    sleep 2
  done
  trireme join --name "$name" --role "$role" "${node[@]}" - <<<"$token"
}

node=(--host "$host" --dir "$dir" --durability "${TRIREME_DURABILITY:-log}")
if [[ ! -e $dir/identity.json ]]; then
  if [[ $name == "${TRIREME_FIRST:-}" && ! -s $operator ]]; then
    trireme init --cluster "$cluster" --name "$name" "${node[@]}"
  else
    # A first node that has lost its volume must not make a second cluster of that name: it joins the one that is there, once
    # `trireme remove` on another node has taken out what it was.
    join
  fi
fi
if [[ $name == "${TRIREME_FIRST:-}" ]]; then
  publish
fi
exec trireme node
