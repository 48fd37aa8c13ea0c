# Makes access lists of ten lines for a client with one address of each family. `list-8-2` has eight lines of IPv6, and
# two of IPv4.
set -eu
lines() { # ADDRESS NUMBER
    for _ in $(seq "$2"); do echo "$1 /${page} 0"; done
}
for mix in "5 5" "8 2" "2 8" "10 0" "0 10"; do
    set -- $mix
    { lines ${client6} "$1"; lines ${client4} "$2"; } >"list-$1-$2"
done
# Behind the router.
lines ${far6} 1 >list-far-6
lines ${far4} 1 >list-far-4
