package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/mvcc/mvccpb"
)

// resident is the memory of the process in bytes, without garbage.
func resident() int64 {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		panic(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		panic(err)
	}
	return pages * int64(os.Getpagesize())
}

// cache lists and watches a prefix into a map, for so many revisions. It prints the costs of the list, and of the
// changes.
func cache(client *clientv3.Client, arguments []string) error {
	prefix, ctx := arguments[0], context.Background()
	n, err := strconv.ParseInt(arguments[1], 10, 64)
	if err != nil {
		return err
	}
	if _, err := client.Get(ctx, prefix); err != nil { // connects
		return err
	}
	before := resident()
	start, cpu := time.Now(), processorTime()
	content := map[string]*mvccpb.KeyValue{}
	listed, err := client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range listed.Kvs {
		content[string(kv.Key)] = kv
	}
	revision := listed.Header.Revision
	listed = nil
	seconds, spent := time.Since(start).Seconds(), (processorTime() - cpu).Seconds()
	watch := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	fmt.Printf("ready seconds=%.6f cpu=%.6f keys=%d bytes=%d\n", seconds, spent, len(content), resident()-before)
	start, cpu = time.Now(), processorTime()
	if err := apply(watch, content, revision+n); err != nil {
		return err
	}
	fmt.Printf("updated seconds=%.6f cpu=%.6f keys=%d\n", time.Since(start).Seconds(), (processorTime() - cpu).Seconds(),
		len(content))
	return nil
}

// apply applies the events of the watch to the map, up to a revision.
func apply(watch clientv3.WatchChan, content map[string]*mvccpb.KeyValue, last int64) error {
	for answer := range watch {
		if err := answer.Err(); err != nil {
			return err
		}
		for _, event := range answer.Events {
			if event.Type == mvccpb.DELETE {
				delete(content, string(event.Kv.Key))
			} else {
				content[string(event.Kv.Key)] = event.Kv
			}
			if event.Kv.ModRevision >= last {
				return nil
			}
		}
	}
	return fmt.Errorf("the watch has ended")
}
