# Makes the access lists of three clients: source, URI, TLS.
set -eu
for client in 1 2 3; do
    for page in 8k 16k; do
        for tls in 0 1; do
            echo "10.0.0.$client /$page $tls" >"list-$client-$page-$tls"
        done
    done
done
