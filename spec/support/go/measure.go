package main

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

const warming = 500 // pairs before the measurement

// processorTime is the processor time of the process, on all processors.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// measure locks and unlocks a free lock repeatedly, and prints the seconds that have passed, and the seconds of
// processor time.
func measure(client *clientv3.Client, arguments []string) error {
	n, err := strconv.Atoi(arguments[0])
	if err != nil {
		return err
	}
	session, err := concurrency.NewSession(client)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := pairs(session, warming); err != nil {
		return err
	}
	start, cpu := time.Now(), processorTime()
	if err := pairs(session, n); err != nil {
		return err
	}
	fmt.Printf("seconds=%.6f cpu=%.6f\n", time.Since(start).Seconds(), (processorTime() - cpu).Seconds())
	return nil
}

func pairs(session *concurrency.Session, n int) error {
	mutex := concurrency.NewMutex(session, "/bench/mutex")
	for i := 0; i < n; i++ {
		if err := mutex.Lock(context.Background()); err != nil {
			return err
		}
		if err := mutex.Unlock(context.Background()); err != nil {
			return err
		}
	}
	return nil
}
