# curl as a client: curl.sh CURL get|put VERSION COUNT WORKERS URL SHA1|FILE, as http.go has it. One worker reads through
# sha1sum, several read into files.
curl=$1 kind=$2 version=$3 count=$4 workers=$5 url=$6 last=$7
flag=--http1.1
if [ "$version" = 2 ]; then
    case $url in https:*) flag=--http2 ;; *) flag=--http2-prior-knowledge ;; esac
fi
# curl 7.88 says "Error in the HTTP2 framing layer" of a second request by prior knowledge, with any server.
[ "$flag" = --http2-prior-knowledge ] && workers=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ask() { "$curl" -sSfk --noproxy '*' "$flag" "$@" || { echo "curl ended with $?"; exit 1; }; }
if [ "$kind" = put ]; then
    n=0
    while [ $n -lt "$count" ]; do
        ask -o "$folder/response" -T "$last" "$url$n" || exit 1
        n=$((n + 1))
    done
elif [ "$workers" = 1 ]; then
    n=0
    while [ $n -lt "$count" ]; do
        found=$(ask "$url" | sha1sum)
        [ "${found%% *}" = "$last" ] || { echo "the digest is $found, not $last"; exit 1; }
        n=$((n + 1))
    done
else
    # The query makes so many addresses of one.
    ask -Z --parallel-max "$workers" -o "$folder/#1" "$url?[1-$count]" || exit 1
    [ "$(find "$folder" -type f | wc -l)" = "$count" ] || { echo "files are missing"; exit 1; }
    for file in "$folder"/*; do
        found=$(sha1sum <"$file")
        [ "${found%% *}" = "$last" ] || { echo "the digest of $file is $found, not $last"; exit 1; }
    done
fi
echo "all well"
