# crash.sh URL PID..    kills the processes and their children, and prints the time until the URL answers as JSON.
set -eu
url=$1
shift
for pid; do
    kill -KILL $(cat "/proc/$pid/task/$pid/children") "$pid"
done
begin=$(date +%s%N)
deadline=$(($(date +%s) + 30))
until curl -ksSf --connect-timeout 0.1 -m 0.5 -o /dev/null "$url" 2>/dev/null; do
    [ "$(date +%s)" -lt $deadline ]
    sleep 0.01
done
echo "{\"seconds\": $((($(date +%s%N) - begin) / 1000000))e-3}"
