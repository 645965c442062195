package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

// peer is what commands share. Sessions have names, and so have the locks and elections of each.
type peer struct {
	client    *clientv3.Client
	config    clientv3.Config // that client was made with
	mu        sync.Mutex
	sessions  map[string]*concurrency.Session
	mutexes   map[string]*concurrency.Mutex
	elections map[string]*concurrency.Election
	stops     map[string]context.CancelFunc // of what goes on until it is stopped
}

func newPeer(client *clientv3.Client, config clientv3.Config) *peer {
	return &peer{
		client:    client,
		config:    config,
		sessions:  map[string]*concurrency.Session{},
		mutexes:   map[string]*concurrency.Mutex{},
		elections: map[string]*concurrency.Election{},
		stops:     map[string]context.CancelFunc{},
	}
}

type values []interface{}

// verbs are all that can be asked for. An argument that is a time is in milliseconds, and 0 is no limit.
var verbs map[string]func(*peer, *command) (values, error)

func init() {
	verbs = map[string]func(*peer, *command) (values, error){
		"shake":    (*peer).shake,
		"put":      (*peer).put,
		"get":      (*peer).get,
		"swap":     (*peer).swap,
		"watch":    (*peer).watch,
		"session":  (*peer).session,
		"close":    (*peer).close,
		"lock":     (*peer).lock,
		"unlock":   (*peer).unlock,
		"campaign": (*peer).campaign,
		"proclaim": (*peer).proclaim,
		"resign":   (*peer).resign,
		"leader":   (*peer).leader,
		"observe":  (*peer).observe,
		"keep":     (*peer).keep,
		"revoke":   (*peer).revoke,
		"stm":      (*peer).stm,
		"stop":     (*peer).stop,
	}
}

func within(text string) (context.Context, context.CancelFunc) {
	ms, err := strconv.Atoi(text)
	if err != nil || ms == 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
}

// untilStopped is the context of something that the verb stop ends, by the id of its command.
func (p *peer) untilStopped(c *command) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stops[c.id] = cancel
	return ctx
}

// stop ID
func (p *peer) stop(c *command) (values, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cancel, found := p.stops[c.args[0]]
	if !found {
		return nil, fmt.Errorf("nothing of %s can be stopped", c.args[0])
	}
	cancel()
	return nil, nil
}

// shake: makes a TLS handshake, as the client does, and waits for what the server says first; tells why it cannot. The
// client itself tells of a deadline only.
func (p *peer) shake(c *command) (values, error) {
	config := p.config.TLS.Clone()
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(p.config.Endpoints[0], "https://"), config)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	return nil, err
}

// put KEY VALUE TIME: says the revision
func (p *peer) put(c *command) (values, error) {
	ctx, cancel := within(c.args[2])
	defer cancel()
	answer, err := p.client.Put(ctx, c.args[0], c.args[1])
	if err != nil {
		return nil, err
	}
	return values{answer.Header.Revision}, nil
}

// get KEY TIME: says the value, or nothing
func (p *peer) get(c *command) (values, error) {
	ctx, cancel := within(c.args[1])
	defer cancel()
	answer, err := p.client.Get(ctx, c.args[0])
	if err != nil || len(answer.Kvs) == 0 {
		return nil, err
	}
	return values{string(answer.Kvs[0].Value)}, nil
}

// swap KEY OLD NEW: puts a value if the key has another one, by a transaction; says whether it had
func (p *peer) swap(c *command) (values, error) {
	key, old, value := c.args[0], c.args[1], c.args[2]
	answer, err := p.client.Txn(context.Background()).
		If(clientv3.Compare(clientv3.Value(key), "=", old)).
		Then(clientv3.OpPut(key, value)).
		Commit()
	if err != nil {
		return nil, err
	}
	return values{answer.Succeeded}, nil
}

// watch PREFIX: says "created", and then the type, the key and the value of each event, until it is stopped
func (p *peer) watch(c *command) (values, error) {
	answers := p.client.Watch(p.untilStopped(c), c.args[0], clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	for answer := range answers {
		if err := answer.Err(); err != nil {
			return nil, err
		}
		if answer.Created {
			c.say("said", "created")
		}
		for _, event := range answer.Events {
			c.say("said", event.Type, string(event.Kv.Key), string(event.Kv.Value))
		}
	}
	return nil, nil
}

// session NAME TTL: says the id of its lease
func (p *peer) session(c *command) (values, error) {
	ttl, err := strconv.Atoi(c.args[1])
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(p.client, concurrency.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions[c.args[0]] = s
	return values{int64(s.Lease())}, nil
}

func (p *peer) sessionOf(name string) (*concurrency.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, found := p.sessions[name]; found {
		return s, nil
	}
	return nil, fmt.Errorf("no such session: %s", name)
}

// close SESSION
func (p *peer) close(c *command) (values, error) {
	s, err := p.sessionOf(c.args[0])
	if err != nil {
		return nil, err
	}
	return nil, s.Close()
}

// lock SESSION NAME TIME: says the key and the revision that it was locked at
func (p *peer) lock(c *command) (values, error) {
	s, err := p.sessionOf(c.args[0])
	if err != nil {
		return nil, err
	}
	ctx, cancel := within(c.args[2])
	defer cancel()
	m := concurrency.NewMutex(s, c.args[1])
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mutexes[c.args[0]+" "+c.args[1]] = m
	return values{m.Key(), m.Header().Revision}, nil
}

// unlock SESSION NAME
func (p *peer) unlock(c *command) (values, error) {
	p.mu.Lock()
	m, found := p.mutexes[c.args[0]+" "+c.args[1]]
	p.mu.Unlock()
	if !found {
		return nil, fmt.Errorf("%s is not locked", c.args[1])
	}
	return nil, m.Unlock(context.Background())
}

// campaign SESSION NAME VALUE TIME: says the key and its revision
func (p *peer) campaign(c *command) (values, error) {
	s, err := p.sessionOf(c.args[0])
	if err != nil {
		return nil, err
	}
	ctx, cancel := within(c.args[3])
	defer cancel()
	e := concurrency.NewElection(s, c.args[1])
	if err := e.Campaign(ctx, c.args[2]); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.elections[c.args[0]+" "+c.args[1]] = e
	return values{e.Key(), e.Rev()}, nil
}

func (p *peer) electionOf(c *command) (*concurrency.Election, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, found := p.elections[c.args[0]+" "+c.args[1]]; found {
		return e, nil
	}
	return nil, fmt.Errorf("%s is not led", c.args[1])
}

// proclaim SESSION NAME VALUE
func (p *peer) proclaim(c *command) (values, error) {
	e, err := p.electionOf(c)
	if err != nil {
		return nil, err
	}
	return nil, e.Proclaim(context.Background(), c.args[2])
}

// resign SESSION NAME
func (p *peer) resign(c *command) (values, error) {
	e, err := p.electionOf(c)
	if err != nil {
		return nil, err
	}
	return nil, e.Resign(context.Background())
}

// leader SESSION NAME: says the key and the value
func (p *peer) leader(c *command) (values, error) {
	s, err := p.sessionOf(c.args[0])
	if err != nil {
		return nil, err
	}
	found, err := concurrency.NewElection(s, c.args[1]).Leader(context.Background())
	if err != nil {
		return nil, err
	}
	return values{string(found.Kvs[0].Key), string(found.Kvs[0].Value)}, nil
}

// observe SESSION NAME: says each leader's key and value, until it is stopped
func (p *peer) observe(c *command) (values, error) {
	s, err := p.sessionOf(c.args[0])
	if err != nil {
		return nil, err
	}
	for found := range concurrency.NewElection(s, c.args[1]).Observe(p.untilStopped(c)) {
		c.say("said", string(found.Kvs[0].Key), string(found.Kvs[0].Value))
	}
	return nil, nil
}

// keep TTL KEY: puts a key with a lease, says the id, and then the time to live whenever that is renewed; ends when the
// lease does
func (p *peer) keep(c *command) (values, error) {
	ttl, err := strconv.Atoi(c.args[0])
	if err != nil {
		return nil, err
	}
	ctx := p.untilStopped(c)
	lease, err := p.client.Grant(ctx, int64(ttl))
	if err != nil {
		return nil, err
	}
	if _, err := p.client.Put(ctx, c.args[1], "kept", clientv3.WithLease(lease.ID)); err != nil {
		return nil, err
	}
	c.say("said", int64(lease.ID))
	renewed, err := p.client.KeepAlive(ctx, lease.ID)
	if err != nil {
		return nil, err
	}
	for answer := range renewed {
		c.say("said", answer.TTL)
	}
	return values{"lost"}, nil
}

// revoke ID
func (p *peer) revoke(c *command) (values, error) {
	id, err := strconv.ParseInt(c.args[0], 10, 64)
	if err != nil {
		return nil, err
	}
	_, err = p.client.Revoke(context.Background(), clientv3.LeaseID(id))
	return nil, err
}

var isolations = map[string]concurrency.Isolation{
	"serializable_snapshot": concurrency.SerializableSnapshot,
	"serializable":          concurrency.Serializable,
	"repeatable_reads":      concurrency.RepeatableReads,
	"read_committed":        concurrency.ReadCommitted,
}

// stm ISOLATION N KEY...: adds 1 to all keys, N times; says how often a function had to be called again
func (p *peer) stm(c *command) (values, error) {
	n, err := strconv.Atoi(c.args[1])
	if err != nil {
		return nil, err
	}
	calls := 0
	for i := 0; i < n; i++ {
		_, err := concurrency.NewSTM(p.client, func(tx concurrency.STM) error {
			calls++
			for _, key := range c.args[2:] {
				number, _ := strconv.Atoi(tx.Get(key))
				tx.Put(key, strconv.Itoa(number+1))
			}
			return nil
		}, concurrency.WithIsolation(isolations[c.args[0]]))
		if err != nil {
			return nil, err
		}
	}
	return values{calls - n}, nil
}
