# end.sh SIGNAL PID    sends the signal, and prints as JSON the time until the process has ended, and how many connections
# had data to send before.
set -eu
here=$(dirname "$0")
sending=$(sh "$here/sending.sh")
begin=$(date +%s%N)
kill -"$1" "$2"
sh "$here/until-ended.sh" "$2"
echo "{\"seconds\": $((($(date +%s%N) - begin) / 1000000))e-3, \"sending\": $sending}"
