# sockets.sh PORT ADDRESS..    counts the established connections from here to the port of each address. Prints JSON:
# the counts as `1`, `2` and so on, and the largest divided by the mean as `imbalance`.
set -eu
port=$1
shift
for address; do
    ss -Htn state established dst "$address" dport = ":$port" | wc -l
done | awk '{ sum += $1; if ($1 > max) max = $1; text = text "\"" NR "\": " $1 ", " }
    END { printf "{%s\"imbalance\": %.3f}\n", text, sum ? max * NR / sum : 0 }'
