# takeover-ready.sh SOCKET ROLE    succeeds when the node with this administration socket has the role `active`, or is
# a standby that could serve, and has an available agent.
set -eu
shown=$(watari ctl --admin "$1" --json addresses)
watari ctl --admin "$1" --json nodes | grep -q '"available": *true'
echo "$shown" | grep -q "\"role\": *\"$2\""
[ "$2" = active ] || echo "$shown" | grep -q '"ready": *true'
