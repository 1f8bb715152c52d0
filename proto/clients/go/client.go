// Package holdfast is a client of Holdfast, a broker of locks by name.
//
// A Client is one session with a broker. It has many locks at a time, and any
// number of goroutines may use it. It needs no pool.
//
//	c, err := holdfast.Dial(ctx, "a:4653,b:4653", holdfast.Keep(30*time.Second))
//	lock, err := c.Lock(ctx, "stock/4711")
//	defer lock.Unlock(context.WithoutCancel(ctx))
//	err = work(lock.Context(), lock.Fence())
//
// A lock may be lost: its session ends, its lease ends, an operator breaks it,
// or no broker answers in time. Its context ends then, with the cause ErrLost.
// No client can stop a paused program from writing later. Only the resource
// can, by the fence: it refuses a smaller fence than one that it has seen.
package holdfast

import (
	"context"
	"math/rand"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"holdfast.example/proto/clients/go/internal/core"
)

// closeTime bounds the wait of Close for the broker.
const closeTime = 2 * time.Second

// Client is a session. Close ends it.
type Client struct {
	cfg    config
	places []place
	stop   context.CancelFunc // ends the dialling
	ended  sync.WaitGroup
	kick   chan struct{} // wakes the goroutine that connects
	wake   chan struct{} // wakes the one that writes
	closed chan struct{}
	owners atomic.Uint64

	mu      sync.Mutex
	core    *core.Core
	conn    net.Conn // without TLS; nil: none
	address string   // of the last connection
	timer   *time.Timer
	armed   core.Time
	opening []chan error
	later   []func() // OnLost and OnMove that are due
	hooking bool     // a goroutine runs those
}

// Dial connects to the first broker that serves. Addresses are HOST:PORT, HOST
// (port 4653, with TLS 4655), [V6]:PORT or the path of a socket, separated by
// commas: brokers of the same Redis. A host's name may have several addresses.
// Each is tried for 3 s, from a random one on. Dial fails if none serves, or
// ctx ends.
//
// If the connection ends later, the next call connects again.
func Dial(ctx context.Context, addresses string, opts ...Option) (*Client,
	error) {
	if ctx == nil {
		return nil, errNoContext
	}
	cfg := config{core: core.Config{Heartbeat: 2 * time.Second,
		Random: func(n core.Time) core.Time {
			return core.Time(rand.Int63n(int64(n)))
		}}}
	for _, opt := range opts {
		opt(&cfg)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	places, err := parsePlaces(addresses, cfg.tls != nil)
	if err != nil {
		return nil, err
	}
	cfg.core.Elsewhere = len(places) > 1
	run, stop := context.WithCancel(context.Background())
	c := &Client{cfg: cfg, places: places, stop: stop,
		kick: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		closed: make(chan struct{}), core: core.New(cfg.core),
		armed: core.Never}
	c.timer = time.AfterFunc(time.Hour, c.tick)
	c.ended.Add(1)
	go c.run(run)
	if err := c.open(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Address is that of the present connection, or of the last one.
func (c *Client) Address() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.address
}

// open waits for a broker that serves.
func (c *Client) open(ctx context.Context) error {
	done := make(chan error, 1)
	now := c.enter()
	c.opening = append(c.opening, done)
	c.core.Want(now)
	c.leave()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the session: waits end with ErrClosed, and all locks are released.
// It waits for the broker for at most 2 s. A kept session that no broker serves
// now ends by itself, after the time of Keep. Close does not wait for hooks.
func (c *Client) Close() error {
	now := c.enter()
	first := c.core.State() != core.Closed
	if first {
		c.core.Close(now)
		close(c.closed)
		if c.conn != nil {
			c.conn.SetDeadline(time.Now().Add(closeTime))
		}
		c.stop()
	}
	c.leave()
	c.ended.Wait()
	if first {
		c.timer.Stop()
	}
	return nil
}

// enter locks the core, and returns the time.
func (c *Client) enter() core.Time {
	c.mu.Lock()
	return now()
}

// leave does what the core says, and unlocks it.
func (c *Client) leave() {
	for _, effect := range c.core.Effects() {
		c.apply(effect)
	}
	if c.core.Dropping() && c.conn != nil {
		c.conn.Close()
	}
	if c.core.HasOutput() {
		notify(c.wake)
	}
	at := now()
	if c.core.WantsConnection(at) {
		notify(c.kick)
	}
	if due := c.core.Due(); due < c.armed && c.core.State() != core.Closed {
		c.armed = due
		c.timer.Reset(due - at)
	}
	c.mu.Unlock()
}

// laterMax bounds the hooks that wait for a slow one.
const laterMax = 1 << 16

// hook is in the lock of the client. It has a goroutine of its own call f:
// the hooks of a client run in their order, and may call the client.
func (c *Client) hook(f func()) {
	if len(c.later) == laterMax {
		return
	}
	c.later = append(c.later, f)
	if !c.hooking {
		c.hooking = true
		go c.runHooks()
	}
}

func (c *Client) runHooks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.later) > 0 {
		list := c.later
		c.later = nil
		c.mu.Unlock()
		for _, f := range list {
			f()
		}
		c.mu.Lock()
	}
	c.hooking = false
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tick is the timer, which stands for all deadlines.
func (c *Client) tick() {
	now := c.enter()
	c.armed = core.Never
	c.core.Tick(now)
	c.leave()
}

// apply tells one effect to those who wait for it. It must not block.
func (c *Client) apply(e core.Effect) {
	switch e.Kind {
	case core.Finished:
		e.Request.Ref.(*call).finish(c)
	case core.Lost:
		for _, ref := range e.Hold.Refs {
			ref.(*Lock).lose(e.Word)
		}
	case core.Wanted:
		for _, ref := range e.Hold.Refs {
			ref.(*Lock).tellWanted(int(e.Waiters))
		}
	case core.Event:
		for _, ref := range e.Watch.Refs {
			ref.(*watcher).add(e.News)
		}
	case core.WatchEnded:
		for _, ref := range e.Watch.Refs {
			ref.(*watcher).end(failed(e.Failure, e.Watch.Name))
		}
	case core.Opened:
		c.opened(nil)
		if e.Moved && c.cfg.hooks.OnMove != nil {
			address := c.address
			c.hook(func() { c.cfg.hooks.OnMove(address) })
		}
	case core.Refused:
		c.opened(failed(e.Failure, ""))
	}
}

// opened answers those in open.
func (c *Client) opened(err error) {
	for _, done := range c.opening {
		done <- err
	}
	c.opening = nil
}

// call is a request of the program, from submit on.
type call struct {
	*core.Request
	ctx   context.Context
	done  chan struct{} // has room for one
	locks Locks         // of a LOCK that was granted
}

// finish is in the lock of the client. It makes the Locks, so that a LOST in
// the same packet finds them.
func (w *call) finish(c *Client) {
	if w.Kind == core.Lock && w.Failure.Code == "" {
		for _, hold := range w.Holds {
			lock := &Lock{c: c, hold: hold, values: w.ctx}
			if w.Wanted {
				lock.waiters = make(chan int, 1)
			}
			hold.Refs = append(hold.Refs, lock)
			w.locks = append(w.locks, lock)
		}
	}
	w.done <- struct{}{}
}

// submit sends a request if ready, which is in the lock of the client, agrees.
func (c *Client) submit(ctx context.Context, r *core.Request,
	ready func() error) (*call, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	w := &call{Request: r, ctx: ctx, done: make(chan struct{}, 1)}
	r.Ref = w
	now := c.enter()
	defer c.leave()
	if ready != nil {
		if err := ready(); err != nil {
			return nil, err
		}
	}
	c.core.Submit(now, r)
	return w, nil
}

// wait waits for the answer, or the end of ctx: the wait of a LOCK or AWAIT is
// then cancelled. Other requests are carried out all the same.
func (c *Client) wait(ctx context.Context, w *call) error {
	select {
	case <-w.done:
	case <-ctx.Done():
		if c.abandon(w.Request) {
			return context.Cause(ctx)
		}
	}
	name := ""
	if len(w.Names) > 0 {
		name = w.Names[0]
	}
	return failed(w.Failure, name)
}

// do is submit and wait.
func (c *Client) do(ctx context.Context, r *core.Request,
	ready func() error) (*call, error) {
	w, err := c.submit(ctx, r, ready)
	if err != nil {
		return nil, err
	}
	return w, c.wait(ctx, w)
}

// abandon cancels a request. False: it has its answer.
func (c *Client) abandon(r *core.Request) bool {
	now := c.enter()
	defer c.leave()
	return c.core.Cancel(now, r)
}
