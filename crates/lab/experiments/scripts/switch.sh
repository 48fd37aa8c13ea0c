# switch.sh SOCKET NEXT NEXT-SOCKET    gives all service addresses to the node NEXT, and prints the time until it has
# them as JSON.
set -eu
begin=$(date +%s%N)
deadline=$(($(date +%s) + 30))
watari ctl --admin "$1" switch "$2" >&2
until watari ctl --admin "$3" --json addresses | grep -q '"role": *"active"'; do
    [ "$(date +%s)" -lt $deadline ]
    sleep 0.02
done
echo "{\"seconds\": $((($(date +%s%N) - begin) / 1000000))e-3}"
