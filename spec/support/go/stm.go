package main

import (
	"strconv"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

var isolations = map[string]concurrency.Isolation{
	"serializable_snapshot": concurrency.SerializableSnapshot,
	"serializable":          concurrency.Serializable,
	"repeatable_reads":      concurrency.RepeatableReads,
}

// count adds 1 to all keys, n times.
func count(client *clientv3.Client, arguments []string) error {
	isolation, keys := concurrency.WithIsolation(isolations[arguments[0]]), arguments[2:]
	n, err := strconv.Atoi(arguments[1])
	for i := 0; i < n && err == nil; i++ {
		_, err = concurrency.NewSTM(client, func(tx concurrency.STM) error {
			for _, key := range keys {
				number, _ := strconv.Atoi(tx.Get(key))
				tx.Put(key, strconv.Itoa(number+1))
			}
			return nil
		}, isolation)
	}
	return err
}
