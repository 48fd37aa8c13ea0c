# once.sh FILE COMMAND..    waits until the file exists, and becomes the command.
set -eu
file=$1
shift
rm -f "$file"
until [ -e "$file" ]; do sleep 0.05; done
exec "$@"
