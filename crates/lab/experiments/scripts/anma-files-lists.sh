# Makes access lists with the files of a page: one of 32 KB, or two to four that together have as much.
set -eu
list() { # NAME FILE..
    name=$1
    shift
    for file; do echo "- /$file 0"; done >"list-$name"
}
list a 32k
list b 16k 16k
list c 16k 8k 8k
list d 8k 8k 8k 8k
