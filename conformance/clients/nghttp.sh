# nghttp as a client: nghttp.sh NGHTTP get 2 COUNT WORKERS URL SHA1, as http.go has it; it looks at no bytes.
nghttp=$1 count=$4 url=$6
text=$("$nghttp" -n -s --no-dep -m "$count" "$url" 2>&1) || { echo "$text" && exit 1; }
# Lines of its statistics: an identifier, two times, the time between them, the status.
found=$(echo "$text" | grep -cE '^ *[0-9]+ .* 200 ')
[ "$found" = "$count" ] && echo "all well" || { echo "$found of $count: $text" && exit 1; }
