// A program with etcd's own client for Go, which does what it is told: the Go side of spec/interop/go_spec.lua, of
// spec/interop/tls_spec.lua, of bench/mutex.lua and of bench/cache.lua.
//
//	peer [FLAGS] ENDPOINTS                 obeys commands, until there are no more
//	peer [FLAGS] ENDPOINTS mutex N         locks and unlocks N times, and tells what that took
//	peer [FLAGS] ENDPOINTS cache PREFIX N  lists and watches a prefix into a map, and tells what N changes took
//
// Over TLS the flags are files: -ca, who is trusted, and -cert and -key, what is shown to the server.
//
// A command is a line, "ID VERB ARGUMENTS", and is done beside the others. Its answer is a line, too: "ID ok VALUES" or
// "ID failed TEXT". Before that there may be lines "ID said VALUES".
package main

import (
	"bufio"
	"crypto/tls"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/pkg/transport"
)

const dialTimeout = 5 * time.Second

// command is one line that was read. Its arguments are words.
type command struct {
	id   string
	args []string
}

var output sync.Mutex

func (c *command) say(words ...interface{}) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(append([]interface{}{c.id}, words...)...)
}

// securityOf is what the flags say of TLS; nil is a plain connection.
func securityOf(ca, cert, key string) (*tls.Config, error) {
	if ca == "" {
		return nil, nil
	}
	return transport.TLSInfo{TrustedCAFile: ca, CertFile: cert, KeyFile: key}.ClientConfig()
}

func configOf(endpoints, ca, cert, key string) (clientv3.Config, error) {
	security, err := securityOf(ca, cert, key)
	return clientv3.Config{
		Endpoints:   strings.Split(endpoints, ","),
		DialTimeout: dialTimeout,
		TLS:         security,
	}, err
}

func main() {
	ca := flag.String("ca", "", "the file of the authority that is trusted")
	cert := flag.String("cert", "", "the file of our certificate")
	key := flag.String("key", "", "the file of its key")
	flag.Parse()
	config, err := configOf(flag.Arg(0), *ca, *cert, *key)
	var client *clientv3.Client
	if err == nil {
		client, err = clientv3.New(config)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer client.Close()
	switch flag.Arg(1) {
	case "mutex":
		measure(client, flag.Arg(2))
	case "cache":
		cache(client, flag.Arg(2), flag.Arg(3))
	default:
		obey(client, config)
	}
}

// obey does commands as they come.
func obey(client *clientv3.Client, config clientv3.Config) {
	p := newPeer(client, config)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		c := &command{id: words[0], args: words[2:]}
		do, known := verbs[words[1]]
		if !known {
			c.say("failed", "no such verb:", words[1])
			continue
		}
		go func() {
			values, err := do(p, c)
			if err != nil {
				c.say("failed", err)
				return
			}
			c.say(append([]interface{}{"ok"}, values...)...)
		}()
	}
}
