package holdfast

import (
	"context"
	"net"
	"testing"
	"time"

	"holdfast.example/proto/clients/go/internal/core"
)

// TestHooksCallTheClient has hooks lock, release and close.
func TestHooksCallTheClient(t *testing.T) {
	address, _ := newRig(t).broker()
	ctx := within(t, 20*time.Second)
	var c *Client
	order := make(chan string, 3)
	c = dial(t, address, WithHooks(Hooks{
		OnGrant: func(_ context.Context, names []string, _ time.Duration,
			err error) {
			if err == nil && names[0] == "a" {
				must(t)(c.Lock(ctx, "in a hook"))
			}
		},
		OnLost: func(lock *Lock, _ error) {
			order <- lock.Name()
			expect(t, lock.Unlock(ctx), ErrLost)
			next := must(t)(c.Lock(ctx, lock.Name()+" again"))
			expect(t, next.Unlock(ctx), nil)
			if lock.Name() == "b" {
				c.Close()
				order <- "closed"
			}
		},
	}))
	must(t)(c.Lock(ctx, "a", Lease(300*time.Millisecond)))
	must(t)(c.Lock(ctx, "b", Lease(600*time.Millisecond)))
	for _, want := range []string{"a", "b", "closed"} {
		select {
		case got := <-order:
			if got != want {
				t.Errorf("%q, not %q", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("a hook hangs before %q", want)
		}
	}
}

func TestHooksThatWaitAreBounded(t *testing.T) {
	c, began, stop := &Client{}, make(chan int), make(chan int)
	hook := func(f func()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hook(f)
	}
	hook(func() {
		close(began)
		<-stop
	})
	<-began
	ran := make(chan int, laterMax+2)
	for i := 0; i < laterMax+1; i++ {
		i := i
		hook(func() { ran <- i })
	}
	close(stop)
	for i := 0; i < laterMax; i++ {
		if got := <-ran; got != i {
			t.Fatalf("%d, not %d", got, i)
		}
	}
	hook(func() { ran <- -1 })
	if got := <-ran; got != -1 {
		t.Errorf("%d is beyond the bound", got)
	}
}

// counting is a connection that counts the writes.
type counting struct {
	net.Conn
	writes int
}

func (c *counting) Write(bytes []byte) (int, error) {
	c.writes++
	return len(bytes), nil
}

func TestStaleWakeWritesNothing(t *testing.T) {
	c := &Client{core: core.New(core.Config{}), wake: make(chan struct{})}
	conn, over, done := &counting{}, make(chan struct{}), make(chan struct{})
	go func() {
		c.write(conn, over)
		close(done)
	}()
	c.wake <- struct{}{}
	close(over)
	<-done
	if conn.writes != 0 {
		t.Error(conn.writes, "empty writes")
	}
}

func TestNoContext(t *testing.T) {
	address, _ := newRig(t).broker()
	c := dial(t, address, WithHooks(Hooks{OnWait: func(ctx context.Context,
		_ []string) {
		ctx.Err()
	}}))
	ctx := within(t, 20*time.Second)
	lock := must(t)(c.Lock(ctx, "a", Shared(), Upgradable()))
	detached, err := c.LockDetached(ctx, "b", time.Minute)
	expect(t, err, nil)
	var none context.Context
	calls := []func() error{
		func() error { _, err := Dial(none, address); return err },
		func() error { _, err := c.Lock(none, "c"); return err },
		func() error { _, err := c.Await(none, "c"); return err },
		func() error { _, err := c.Resize(none, "c", 1); return err },
		func() error { _, err := c.LockDetached(none, "c", 1); return err },
		func() error { _, err := lock.Upgrade(none); return err },
		func() error { return c.Do(none, "c", nil) },
		func() error { return c.Lead(none, "c", nil) },
		func() error { return lock.Renew(none, time.Second) },
		func() error { return lock.SetNote(none, "n") },
		func() error { return lock.Unlock(none) },
		func() error { return detached.Renew(none, time.Second) },
		func() error { return detached.Unlock(none) },
		func() (err error) {
			c.Watch(none, "c")(func(_ Holder, e error) bool {
				err = e
				return true
			})
			return err
		},
	}
	for i, call := range calls {
		if err := call(); err != errNoContext {
			t.Error(i, err)
		}
	}
	expect(t, lock.Check(), nil)
}
