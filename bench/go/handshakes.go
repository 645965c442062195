// A TLS server that makes handshakes and does nothing else, by Go's crypto/tls: what bench/tls.lua compares keywatch's
// handshakes with.
//
//	handshakes ADDRESS CERTIFICATE KEY
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"os"
)

// serve makes the handshake, reads up to the client's close_notify, and closes.
func serve(raw net.Conn, config *tls.Config) {
	conn := tls.Server(raw, config)
	defer conn.Close()
	if err := conn.Handshake(); err != nil {
		log.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		log.Fatal(err)
	}
}

func main() {
	certificate, err := tls.LoadX509KeyPair(os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}}
	fmt.Println("ready to serve client requests")
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(conn, config)
	}
}
