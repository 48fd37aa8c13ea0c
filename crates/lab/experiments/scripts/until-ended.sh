# until-ended.sh PID    waits until the process has ended: 30 s at most. Its parent may not have waited for it.
state() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c 1; }
deadline=$(($(date +%s) + 30))
while current=$(state "$1") && [ -n "$current" ] && [ "$current" != Z ] && [ "$(date +%s)" -lt $deadline ]; do
    sleep 0.01
done
