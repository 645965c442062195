// A program with etcd's own client for Go, which does what it is told: the Go side of spec/interop/go_spec.lua and of
// bench/mutex.lua.
//
//	peer ENDPOINTS          obeys commands, until there are no more
//	peer ENDPOINTS mutex N  locks and unlocks N times, and tells what that took
//
// A command is a line, "ID VERB ARGUMENTS", and is done beside the others. Its answer is a line, too: "ID ok VALUES" or
// "ID failed TEXT". Before that there may be lines "ID said VALUES".
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/clientv3"
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

func main() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   strings.Split(os.Args[1], ","),
		DialTimeout: dialTimeout,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer client.Close()
	if len(os.Args) > 2 {
		measure(client, os.Args[3])
		return
	}
	obey(client)
}

// obey does commands as they come.
func obey(client *clientv3.Client) {
	p := newPeer(client)
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
