# churn.sh watari | haproxy SERVICE NETWORK PID1 PID2    runs on a router with multipath routes to nodes 1, 2 and 3 of
# the network (`10.2.0.1`, without the last digit): node 4 comes, then the processes of node 1 and 2 end, as their
# manuals say. The router's routes follow. Prints the time of all of it as JSON.
set -eu
kind=$1 service=$2 network=$3 first=$4 second=$5
work=$(dirname "$0")
deadline=$(($(date +%s) + 60))

route_to() { # NODE..
    hops=
    for node; do hops="$hops nexthop via $network$node"; done
    ip route replace "$service/32" $hops
}
fail_if_late() {
    [ "$(date +%s)" -lt $deadline ] || exit 1
    sleep 0.02
}
until_serving() { # NODE..
    [ "$kind" = watari ] || { until_connected "$@"; return; }
    for node; do
        until sh "$work/multipath-ready.sh" "$work/d$node.sock" $(($# - 1)); do fail_if_late; done
    done
}
until_connected() { # NODE..
    for node; do
        until curl -ksSf -m 1 -o /dev/null --connect-to "::$network$node:443" "https://$service/page"; do fail_if_late; done
    done
}
leave() { # SIGNAL PID NODE OTHER-NODE..
    signal=$1 pid=$2 leaving=$3
    shift 3
    kill -"$signal" "$pid"
    route_to "$@"
    if [ "$kind" = watari ]; then
        while watari ctl --admin "$work/d$leaving.sock" --json addresses >/dev/null 2>&1; do fail_if_late; done
    else
        # As long as a dispatcher waits for routers (`withdraw`).
        sleep 1
    fi
    until_serving "$@"
}

begin=$(date +%s%N)
touch "$work/go"
until_serving 1 2 3 4
route_to 1 2 3 4
until_serving 1 2 3 4
# HAProxy ends after its last client.
[ "$kind" = watari ] && signal=TERM || signal=USR1
leave $signal "$first" 1 2 3 4
leave $signal "$second" 2 3 4
echo "{\"seconds\": $((($(date +%s%N) - begin) / 1000000))e-3}"
