# h2load as a client: h2load.sh H2LOAD get VERSION COUNT WORKERS URL SHA1, as http.go has it; it looks at no bytes. The
# workers are streams of one connection, with HTTP/1.1 connections.
h2load=$1 version=$3 count=$4 workers=$5 url=$6
set -- -m "$workers" -c 1
[ "$version" = 2 ] || set -- --h1 -c "$workers"
text=$("$h2load" -n "$count" "$@" -w 24 -W 24 "$url" 2>&1)
case $text in
*" $count succeeded, 0 failed, 0 errored, 0 timeout"*) echo "all well" ;;
*) echo "$text" && exit 1 ;;
esac
