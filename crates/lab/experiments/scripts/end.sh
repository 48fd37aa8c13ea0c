# end.sh SIGNAL PID    sends the signal, and prints the time until the process has ended as JSON.
set -eu
begin=$(date +%s%N)
kill -"$1" "$2"
sh "$(dirname "$0")/until-ended.sh" "$2"
echo "{\"seconds\": $((($(date +%s%N) - begin) / 1000000))e-3}"
