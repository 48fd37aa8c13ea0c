# drain.sh SOCKET AGENT PID    drains the agent at the dispatcher with this administration socket, then ends the agent's
# process. Prints as JSON the time until it has ended, and how many connections had data to send before.
set -eu
here=$(dirname "$0")
sending=$(sh "$here/sending.sh")
begin=$(date +%s%N)
watari ctl --admin "$1" drain "$2" --grace 30s >&2
kill -TERM "$3"
sh "$here/until-ended.sh" "$3"
echo "{\"seconds\": $((($(date +%s%N) - begin) / 1000000))e-3, \"sending\": $sending}"
