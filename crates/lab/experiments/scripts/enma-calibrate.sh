# enma-calibrate.sh URL FILE    measures how many requests per second the server answers, and stores it
set -eu
load() {
    watari bench http "$1" -d "$2" -c 128 --requests-per-connection 1 --json
}
# A server that has just started is slower.
load "$1" 2s >"$2.json"
load "$1" 4s >"$2.json"
sed -n 's/.*"requests_per_s": *\([0-9.]*\).*/\1/p' "$2.json" | head -1 >"$2"
