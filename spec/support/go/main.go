// A program with etcd's own client for Go: the Go side of spec/interop/go_spec.lua, of bench/mutex.lua and of
// bench/cache.lua.
//
//	peer ENDPOINTS mutex N               locks and unlocks N times, and prints the cost
//	peer ENDPOINTS cache PREFIX N        lists and watches a prefix into a map, and prints the cost of N changes
//	peer ENDPOINTS stm ISOLATION N KEY…  adds 1 to all keys, N times, by software transactions
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/clientv3"
)

const dialTimeout = 5 * time.Second

var commands = map[string]func(client *clientv3.Client, arguments []string) error{
	"mutex": measure,
	"cache": cache,
	"stm":   count,
}

func main() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   strings.Split(os.Args[1], ","),
		DialTimeout: dialTimeout,
	})
	if err == nil {
		defer client.Close()
		err = commands[os.Args[2]](client, os.Args[3:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
