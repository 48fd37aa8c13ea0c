# drain.sh SOCKET AGENT PID    drains the agent at the dispatcher with this administration socket, then ends the agent's
# process. Prints the time until it has ended as JSON.
set -eu
begin=$(date +%s%N)
watari ctl --admin "$1" drain "$2" --grace 30s >&2
sh "$(dirname "$0")/end.sh" TERM "$3" >&2
echo "{\"seconds\": $((($(date +%s%N) - begin) / 1000000))e-3}"
