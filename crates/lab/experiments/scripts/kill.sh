# kill.sh PID    kills the process and its children.
set -eu
kill -KILL $(cat "/proc/$1/task/$1/children") "$1"
