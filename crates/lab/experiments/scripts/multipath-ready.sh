# multipath-ready.sh SOCKET OTHERS    succeeds when the dispatcher serves beside that number of others, and all
# connections are where they should be.
shown=$(watari ctl --admin "$1" --json addresses 2>/dev/null) || exit 1
echo "$shown" | grep -q '"role": *"serving"' || exit 1
echo "$shown" | grep -q ' 0 strays' || exit 1
! echo "$shown" | grep -q 'not agreed' || exit 1
[ "$(echo "$shown" | grep -o '[a-z0-9] serving' | wc -l)" -eq "$2" ]
