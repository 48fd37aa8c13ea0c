# small-windows.sh    gives this machine small receive windows, for connections made from now on. Otherwise megabytes of each
# download would wait in its buffers.
echo "4096 65536 131072" >/proc/sys/net/ipv4/tcp_rmem
