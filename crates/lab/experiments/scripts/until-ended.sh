# until-ended.sh PID    waits until the process has ended. Fails if it has not after 30 s. Its parent may not have waited
# for it.
state() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -c 1; }
deadline=$(($(date +%s) + 30))
while current=$(state "$1") && [ -n "$current" ] && [ "$current" != Z ]; do
    if [ "$(date +%s)" -ge $deadline ]; then
        echo "process $1 has not ended in 30 s" >&2
        exit 1
    fi
    sleep 0.01
done
