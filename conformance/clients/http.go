// Go's net/http as a client that reads and sends as fast as it can.
//
//	http get VERSION COUNT WORKERS URL SHA1    so many GETs in all, each body with this digest
//	http put VERSION COUNT WORKERS URL FILE    so many PUTs of a file to URL0, URL1, ...
//
// VERSION is 1.1 or 2; without TLS 2 is by prior knowledge. Certificates are not checked. It prints "all well", or what failed.
package main

import (
	"crypto/sha1"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

func client(version string) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(version == "1.1")
	protocols.SetHTTP2(version == "2")
	protocols.SetUnencryptedHTTP2(version == "2")
	return &http.Client{Transport: &http.Transport{
		Protocols:           protocols,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 100,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
	}}
}

func check(response *http.Response, version string) error {
	if response.Proto != "HTTP/"+version && response.Proto != "HTTP/"+version+".0" {
		return fmt.Errorf("the response came over %s", response.Proto)
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the response is %s", response.Status)
	}
	return nil
}

func get(client *http.Client, version, url, wanted string) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	digest := sha1.New()
	length, err := io.Copy(digest, response.Body)
	if err != nil {
		return fmt.Errorf("after %d bytes: %w", length, err)
	}
	if found := hex.EncodeToString(digest.Sum(nil)); found != wanted {
		return fmt.Errorf("%d bytes with the digest %s, not %s", length, found, wanted)
	}
	return check(response, version)
}

func put(client *http.Client, version, url, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	state, err := file.Stat()
	if err != nil {
		return err
	}
	request, err := http.NewRequest("PUT", url, file)
	if err != nil {
		return err
	}
	request.ContentLength = state.Size()
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	return check(response, version)
}

func number(text string) int {
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return number
}

func main() {
	kind, version, count, workers := os.Args[1], os.Args[2], number(os.Args[3]), number(os.Args[4])
	url, last := os.Args[5], os.Args[6]
	client := client(version)
	ask := func(turn int) error {
		if kind == "get" {
			return get(client, version, url, last)
		}
		return put(client, version, url+strconv.Itoa(turn), last)
	}
	var turn, failed atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for n := int(turn.Add(1)) - 1; n < count; n = int(turn.Add(1)) - 1 {
				if err := ask(n); err != nil {
					failed.Add(1)
					fmt.Println(err)
				}
			}
		})
	}
	group.Wait()
	if failed.Load() > 0 {
		fmt.Println(failed.Load(), "of", count, "failed")
		os.Exit(1)
	}
	fmt.Println("all well")
}
