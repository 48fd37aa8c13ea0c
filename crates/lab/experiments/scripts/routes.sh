# routes.sh ROUTE..    makes its host a router that spreads connections over the next hops of a route, and sets a route
# (the arguments of `ip route replace`).
set -eu
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/fib_multipath_hash_policy
ip route replace "$@"
exec sleep infinity
