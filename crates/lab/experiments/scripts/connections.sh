# connections.sh SOCKET AGENT..    counts the dispatcher's connections at each agent. Prints JSON: the counts as `1`, `2`
# and so on, and the largest divided by the mean as `imbalance`.
set -eu
shown=$(watari ctl --admin "$1" --json connections)
shift
for agent; do
    echo "$shown" | grep -o "\"node\": *\"$agent\"" | wc -l
done | awk '{ sum += $1; if ($1 > max) max = $1; text = text "\"" NR "\": " $1 ", " }
    END { printf "{%s\"imbalance\": %.3f}\n", text, sum ? max * NR / sum : 0 }'
