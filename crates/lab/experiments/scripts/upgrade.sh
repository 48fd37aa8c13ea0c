# upgrade.sh watari SOCKET PID | nginx PID-FILE | haproxy SOCKET PID    replaces a process by a new one of the same
# program, as its manual says. Prints the time until the old process has ended as JSON.
set -eu
begin=$(date +%s%N)
case $1 in
watari)
    old=$3
    watari ctl --admin "$2" upgrade >&2
    ;;
nginx)
    # New workers, which is what connections see of a new program (SIGUSR2 needs a daemon).
    master=$(cat "$2")
    old=$(tr -d ' ' <"/proc/$master/task/$master/children")
    kill -HUP "$master"
    ;;
haproxy)
    old=$3
    config=$(tr '\0' '\n' <"/proc/$old/cmdline" | sed -n '/^-f$/{n;p}')
    haproxy -db -f "$config" -x "$2" -sf "$old" >&2 &
    ;;
esac
sh "$(dirname "$0")/until-ended.sh" "$old"
echo "{\"seconds\": $((($(date +%s%N) - begin) / 1000000))e-3}"
