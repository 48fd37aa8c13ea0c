# behind-router.sh GATEWAY ADDRESS COMMAND..    sets the default route, gives the loopback interface the address (`-`:
# none), and becomes the command.
set -eu
gateway=$1 address=$2
shift 2
# Several systems have the address, so none may ask for link-layer addresses in its name.
echo 2 >/proc/sys/net/ipv4/conf/all/arp_announce
ip route replace default via "$gateway"
[ "$address" = - ] || ip address replace "$address/32" dev lo
exec "$@"
