# anma-serve.sh OVERFLOW COMMAND..    runs a server as on the machine of the paper
#
# Each packet costs, because there is no segmentation offload. With OVERFLOW = 1, a connection that finds the listen
# queue full is reset.
set -eu
echo "$1" >/proc/sys/net/ipv4/tcp_abort_on_overflow
ip link set eth0 gso_max_segs 1
shift
exec "$@"
