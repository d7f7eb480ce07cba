// A web server in Go, by cgo: its handlers are goroutines.
//
//	PKG_CONFIG_PATH=PREFIX/lib/pkgconfig go run . 127.0.0.1:8080
//	curl http://127.0.0.1:8080/hello?you
package main

/*
#cgo pkg-config: weir
#include <stdlib.h>
#include <weir.h>

extern void handleRequest(weir_request *request, void *data);

static const char *bytes_of(weir_text text) { return text.bytes; }
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// Request is a request that a goroutine responds to.
type Request struct{ handle *C.weir_request }

// Query is what follows the question mark.
func (r Request) Query() string {
	text := C.weir_request_query(r.handle)
	return C.GoStringN(C.bytes_of(text), C.int(text.length))
}

// End ends the response. It fails when the client has left.
func (r Request) End(body string) error {
	bytes := []byte(body)
	return try(func() C.int {
		return C.weir_response_end(r.handle, (*C.char)(unsafe.Pointer(unsafe.SliceData(bytes))), C.size_t(len(bytes)))
	})
}

// try calls a function and returns its message if it fails, which is the thread's.
func try(call func() C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if call() < 0 {
		return errors.New(C.GoString(C.weir_error_message()))
	}
	return nil
}

// hello may wait as it likes: it is a goroutine of its own.
func hello(request Request) {
	time.Sleep(10 * time.Millisecond)
	if err := request.End("Hello, " + request.Query() + "!\n"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// handleRequest runs on a worker's thread, which it must not block.
//
//export handleRequest
func handleRequest(request *C.weir_request, _ unsafe.Pointer) {
	kept := Request{C.weir_request_ref(request)}
	go func() {
		defer C.weir_request_unref(kept.handle)
		hello(kept)
	}()
}

func serve(address string) error {
	builder := C.weir_builder_new()
	defer C.weir_builder_free(builder)
	where, path := C.CString(address), C.CString("/hello")
	defer C.free(unsafe.Pointer(where))
	defer C.free(unsafe.Pointer(path))
	var server *C.weir_server
	for _, step := range []func() C.int{
		func() C.int { return C.weir_builder_listen(builder, where) },
		func() C.int {
			return C.weir_builder_location(builder, path, C.weir_handler_fn(C.handleRequest), nil, nil)
		},
		func() C.int { return C.weir_server_start(builder, &server) },
	} {
		if err := try(step); err != nil {
			return err
		}
	}
	var text [128]C.char
	C.weir_server_address(server, 0, &text[0], C.size_t(len(text)))
	fmt.Printf("http://%s/hello?you\n", C.GoString(&text[0]))

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	<-signals
	return try(func() C.int { return C.weir_server_free(server) })
}

func main() {
	address := "127.0.0.1:8080"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	if err := serve(address); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
