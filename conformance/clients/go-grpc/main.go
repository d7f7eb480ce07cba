// A gRPC server and a gRPC client of Go's own library, with bytes for messages, as crates/weir/tests/data/grpc_peer.py has them.
//
//	go-grpc serve                 prints its port, serves until its input ends
//	go-grpc ask ADDR CA COUNT     makes calls of every kind to ADDR, with a CA over TLS (else "-"); prints "all calls well"
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const timeout = 10 * time.Minute

// bytesCodec leaves messages as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (bytesCodec) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = bytes.Clone(data)
	return nil
}

func unary(_ any, stream grpc.ServerStream) error {
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	switch string(request) {
	case "fail":
		stream.SetTrailer(metadata.Pairs("why", "asked for"))
		return status.Error(codes.NotFound, "no such thing")
	case "slow":
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	stream.SetTrailer(metadata.Pairs("last", "yes"))
	if err := stream.SendHeader(metadata.Pairs("first", "yes")); err != nil {
		return err
	}
	slices.Reverse(request)
	return stream.SendMsg(&request)
}

func down(_ any, stream grpc.ServerStream) error {
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	if string(request) == "hang" {
		begun := []byte("begun")
		if err := stream.SendMsg(&begun); err != nil {
			return err
		}
		<-stream.Context().Done()
		fmt.Println("given up")
		return stream.Context().Err()
	}
	count, err := strconv.Atoi(string(request))
	for number := 0; err == nil && number < count; number++ {
		message := strconv.AppendInt(nil, int64(number), 10)
		err = stream.SendMsg(&message)
	}
	return err
}

func up(_ any, stream grpc.ServerStream) error {
	sum := 0
	for {
		var message []byte
		err := stream.RecvMsg(&message)
		if err == io.EOF {
			text := strconv.AppendInt(nil, int64(sum), 10)
			return stream.SendMsg(&text)
		}
		if err != nil {
			return err
		}
		sum += len(message)
	}
}

func both(_ any, stream grpc.ServerStream) error {
	for {
		var message []byte
		if err := stream.RecvMsg(&message); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		upper := bytes.ToUpper(message)
		if err := stream.SendMsg(&upper); err != nil {
			return err
		}
	}
}

func serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	server := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.MaxRecvMsgSize(1<<30))
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "t.T", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
		{StreamName: "Unary", Handler: unary},
		{StreamName: "Down", Handler: down, ServerStreams: true},
		{StreamName: "Up", Handler: up, ClientStreams: true},
		{StreamName: "Both", Handler: both, ServerStreams: true, ClientStreams: true},
	}}, nil)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go server.Serve(listener)
	io.Copy(io.Discard, os.Stdin)
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func need(condition bool, what ...any) {
	if !condition {
		must(fmt.Errorf("not as it should be: %v", what))
	}
}

type caller struct{ connection *grpc.ClientConn }

func (c caller) stream(ctx context.Context, name string, client, server bool) grpc.ClientStream {
	description := &grpc.StreamDesc{StreamName: name, ClientStreams: client, ServerStreams: server}
	stream, err := c.connection.NewStream(ctx, description, "/t.T/"+name)
	must(err)
	return stream
}

func (c caller) unary(ctx context.Context, request []byte, options ...grpc.CallOption) ([]byte, error) {
	var response []byte
	err := c.connection.Invoke(ctx, "/t.T/Unary", &request, &response, options...)
	return response, err
}

func send(stream grpc.ClientStream, message []byte) {
	must(stream.SendMsg(&message))
}

// next is false at the stream's end.
func next(stream grpc.ClientStream) ([]byte, bool) {
	var message []byte
	err := stream.RecvMsg(&message)
	if err != io.EOF {
		must(err)
	}
	return message, err == nil
}

func (c caller) single(ctx context.Context) {
	var first, last metadata.MD
	response, err := c.unary(ctx, []byte("abc"), grpc.Header(&first), grpc.Trailer(&last))
	need(err == nil && string(response) == "cba" && first["first"][0] == "yes" && last["last"][0] == "yes", err, first, last)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	response, err = c.unary(ctx, large)
	slices.Reverse(large)
	need(err == nil && bytes.Equal(response, large), err)
	_, err = c.unary(ctx, []byte("fail"), grpc.Trailer(&last))
	need(status.Code(err) == codes.NotFound && last["why"][0] == "asked for", err, last)
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	_, err = c.unary(short, []byte("slow"))
	need(late(status.Code(err)), err)
}

// late says whether a call ended for its deadline: a server of Go's library counts it, too, and resets the stream, of which
// a proxy makes status 502, and a client UNAVAILABLE.
func late(code codes.Code) bool {
	return code == codes.DeadlineExceeded || code == codes.Unavailable
}

func (c caller) many(ctx context.Context) {
	errors := make(chan error)
	for number := range 1000 {
		go func() {
			text := []byte(strconv.Itoa(number))
			response, err := c.unary(ctx, text)
			slices.Reverse(text)
			if err == nil && !bytes.Equal(response, text) {
				err = fmt.Errorf("%s for %s", response, text)
			}
			errors <- err
		}()
	}
	for range 1000 {
		must(<-errors)
	}
}

func (c caller) downwards(ctx context.Context, count int) {
	hanging, cancel := context.WithCancel(ctx)
	stream := c.stream(hanging, "Down", false, true)
	send(stream, []byte("hang"))
	begun, _ := next(stream)
	need(string(begun) == "begun", begun)
	cancel()
	stream = c.stream(ctx, "Down", false, true)
	send(stream, []byte(strconv.Itoa(count)))
	must(stream.CloseSend())
	number := 0
	for message, more := next(stream); more; message, more = next(stream) {
		need(string(message) == strconv.Itoa(number), message, number)
		number++
	}
	need(number == count, number)
}

func (c caller) upwards(ctx context.Context, count int) {
	stream := c.stream(ctx, "Up", true, false)
	for range count {
		send(stream, bytes.Repeat([]byte("x"), 100))
	}
	must(stream.CloseSend())
	sum, _ := next(stream)
	need(string(sum) == strconv.Itoa(100*count), sum)
}

// Each question is asked when the one before has its response.
func (c caller) talk(ctx context.Context, count int) {
	stream := c.stream(ctx, "Both", true, true)
	for number := range count {
		send(stream, []byte("q"+strconv.Itoa(number)))
		message, _ := next(stream)
		need(string(message) == "Q"+strconv.Itoa(number), message)
	}
	must(stream.CloseSend())
	_, more := next(stream)
	need(!more)
}

func ask(address, ca string, count int) {
	transport := insecure.NewCredentials()
	if ca != "-" {
		var err error
		transport, err = credentials.NewClientTLSFromFile(ca, "localhost")
		must(err)
	}
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(transport), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(bytesCodec{}), grpc.MaxCallRecvMsgSize(1<<30)))
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	caller := caller{connection}
	caller.single(ctx)
	caller.downwards(ctx, count)
	caller.upwards(ctx, count)
	caller.talk(ctx, count/100)
	caller.many(ctx)
	fmt.Println("all calls well")
}

func main() {
	if os.Args[1] == "serve" {
		serve()
		return
	}
	count, err := strconv.Atoi(os.Args[4])
	must(err)
	ask(os.Args[2], os.Args[3], count)
}
