# downloads.sh COUNT RATE URL FILE    gets URL that many times at once, each at RATE bytes a second (as curl's
# --limit-rate), and compares each with FILE. Prints the numbers of complete and of cut downloads as JSON.
# The machine of the clients gets small windows first, as slow clients have: otherwise megabytes of each download would
# wait in the buffers of all systems, and the server would be done with it long before the client is.
set -eu
sh "$(dirname "$0")/small-windows.sh"
count=$1 rate=$2 url=$3 file=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for number in $(seq "$count"); do
    # HTTP/1.1, because a connection of HTTP/2 stays with its server until its streams have ended.
    # Not -f: what was received of a cut download stays, and differs.
    curl -ks --http1.1 --limit-rate "$rate" -m 60 -o "$folder/$number" "$url" &
done
wait
complete=0
for number in $(seq "$count"); do
    if cmp -s "$folder/$number" "$file"; then complete=$((complete + 1)); fi
done
echo "{\"complete\": $complete, \"cut\": $((count - complete))}"
