# enma-load.sh CAPACITY FROM TO SECONDS TIMEOUT URL    sends half of the load, at a rate that grows from FROM to TO
#
# The rates are those of the paper, whose server answered more than 800 requests per second and fewer than 900: 800 were
# normal, and 900 too many. CAPACITY is a file with those that this server answers.
set -eu
scaled() {
    awk -v rate="$1" '{ printf "%.0f", rate / 880 * $1 / 2 }' "$capacity"
}
capacity=$1
exec watari bench http "$6" -r "$(scaled "$2")..$(scaled "$3")/$4s" -d "$4s" -c 8000 --requests-per-connection 1 \
    --timeout "$5" --connect-timeout "$5" --json
