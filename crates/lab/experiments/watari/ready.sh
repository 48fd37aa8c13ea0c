# ready.sh AGENTS DISPATCHER AGENT..    succeeds when the dispatcher has that number of available agents, and the agents
# have links to each other. DISPATCHER and AGENT are administration sockets.
set -eu
agents=$1 dispatcher=$2
shift 2
count() { # SOCKET LINE
    watari ctl --admin "$1" --json nodes | grep -c "$2"
}
[ "$(count "$dispatcher" '"available": true')" -ge "$agents" ]
for agent; do
    [ "$(count "$agent" '"up": true')" -gt "$agents" ]
done
