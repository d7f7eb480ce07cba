// A client of Go's net/http over one TLS connection of HTTP/2, with certificates that it does not check.
//
//	go_client get COUNT WORKERS URL...         so many GETs in all, URL by URL; 200 and Content-Length are checked
//	go_client put COUNT WORKERS BYTES URL      so many POSTs of so many bytes, each answered by their number
//	go_client until WORKERS URL                GETs until the input ends, or until nobody listens any more
//
// It prints "all well" and the number of requests, or what failed.
package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

var client = &http.Client{Transport: &http.Transport{
	ForceAttemptHTTP2:  true,
	DisableCompression: true,
	TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
}}

func get(url string) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	length, err := io.Copy(io.Discard, response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != 200 || response.ProtoMajor != 2 || length != response.ContentLength {
		return fmt.Errorf("%s: %s %s, %d of %d bytes", url, response.Proto, response.Status, length, response.ContentLength)
	}
	return nil
}

func put(url string, length int) error {
	response, err := client.Post(url, "application/octet-stream", bytes.NewReader(make([]byte, length)))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != 200 || strings.TrimSpace(string(text)) != strconv.Itoa(length)) {
		err = fmt.Errorf("%s %q, %d bytes were sent", response.Status, text, length)
	}
	return err
}

func number(text string) int {
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return number
}

func main() {
	var turn, asked, failed atomic.Int64
	var over atomic.Bool
	var workers int
	next := func() bool { return !over.Load() }
	var ask func(turn int) error
	switch arguments := os.Args[2:]; os.Args[1] {
	case "get":
		urls, count := arguments[2:], int64(number(arguments[0]))
		workers = number(arguments[1])
		next = func() bool { return turn.Add(1) <= count }
		ask = func(turn int) error { return get(urls[turn%len(urls)]) }
	case "put":
		count, length := int64(number(arguments[0])), number(arguments[2])
		workers = number(arguments[1])
		next = func() bool { return turn.Add(1) <= count }
		ask = func(int) error { return put(arguments[3], length) }
	case "until":
		workers = number(arguments[0])
		ask = func(int) error { return get(arguments[1]) }
		go func() {
			io.Copy(io.Discard, os.Stdin)
			over.Store(true)
		}()
	}
	// The one connection is there before many ask.
	run := func() {
		err := ask(int(turn.Load()))
		asked.Add(1)
		var dial *net.OpError
		switch {
		case err == nil:
			if asked.Load() == 1 {
				fmt.Println("begun")
			}
		case os.Args[1] == "until" && errors.As(err, &dial) && dial.Op == "dial":
			over.Store(true)
		default:
			failed.Add(1)
			fmt.Println(err)
		}
	}
	if next() {
		run()
	}
	var group sync.WaitGroup
	for range make([]struct{}, workers) {
		group.Add(1)
		go func() {
			defer group.Done()
			for next() {
				run()
			}
		}()
	}
	group.Wait()
	if failed.Load() > 0 {
		fmt.Println(failed.Load(), "of", asked.Load(), "failed")
		os.Exit(1)
	}
	fmt.Println("all well,", asked.Load(), "requests")
}
