package holdfast

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// must is a lock that the test needs.
func must(t testing.TB) func(lock *Lock, err error) *Lock {
	return func(lock *Lock, err error) *Lock {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
}

// expect fails unless err is the wanted one.
func expect(t testing.TB, err, wanted error) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Errorf("%v, not %v", err, wanted)
	}
}

func TestKindsOfLocks(t *testing.T) {
	address, _ := newRig(t).broker()
	c := dial(t, address)
	ctx := within(t, 20*time.Second)
	take := must(t)

	reader := take(c.Lock(ctx, "rw", Shared()))
	upgradable := take(c.Lock(ctx, "rw", Shared(), Upgradable()))
	_, err := upgradable.Upgrade(ctx, Wait(0))
	expect(t, err, ErrBusy)
	expect(t, reader.Unlock(ctx), nil)
	writer := take(upgradable.Upgrade(ctx))
	if writer.Fence() <= upgradable.Fence() {
		t.Error("the upgrade has no fence of its own")
	}
	expect(t, writer.Unlock(ctx), nil)
	expect(t, upgradable.Check(), nil)
	expect(t, upgradable.Unlock(ctx), nil)

	three := take(c.Lock(ctx, "api", Semaphore(4, 3)))
	_, err = c.Lock(ctx, "api", Semaphore(4, 2), Wait(0))
	expect(t, err, ErrBusy)
	expect(t, three.UnlockPart(ctx, 2), nil)
	take(c.Lock(ctx, "api", Semaphore(4, 2), Wait(0)))
	if permits, err := c.Resize(ctx, "api", 9); permits != 3 || err != nil {
		t.Error(permits, err)
	}
	_, err = c.Lock(ctx, "api", Semaphore(4, 1), Wait(0))
	expect(t, err, ErrConflict)

	part := take(c.Lock(ctx, "shop/17", Tree()))
	take(c.Lock(ctx, "shop/18", Tree(), Wait(0)))
	_, err = c.Lock(ctx, "shop", Tree(), Wait(time.Millisecond))
	expect(t, err, ErrTimeout)
	expect(t, part.Unlock(ctx), nil)

	both, err := c.LockAll(ctx, []string{"from", "to"})
	expect(t, err, nil)
	if both[0].Name() != "from" || both[1].Fence() == 0 {
		t.Error(both)
	}
	var e *Error
	_, err = c.LockAll(ctx, []string{"x", "to"}, Wait(0))
	if !errors.As(err, &e) || e.Name != "to" {
		t.Error(err)
	}
	expect(t, both.Unlock(ctx), nil)
}

func TestOwners(t *testing.T) {
	address, _ := newRig(t).broker()
	c := dial(t, address)
	ctx := within(t, 20*time.Second)
	take := must(t)
	one, two := WithOwner(ctx, "one"), WithOwner(ctx, "two")

	first, again := take(c.Lock(one, "a")), take(c.Lock(one, "a"))
	if first.Fence() != again.Fence() {
		t.Error("a re-entry has another fence")
	}
	expect(t, first.Unlock(ctx), nil)
	expect(t, again.Check(), nil)
	_, err := c.Lock(two, "a", Wait(0))
	expect(t, err, ErrBusy)

	other := take(c.Lock(two, "b"))
	errs := make(chan error)
	wait := func(ctx context.Context, name string, holds *Lock) {
		lock, err := c.Lock(ctx, name)
		if err == nil {
			expect(t, lock.Unlock(ctx), nil)
		} else { // it gives up what it holds, so the other one goes on
			expect(t, holds.Unlock(ctx), nil)
		}
		errs <- err
	}
	go wait(one, "b", again)
	go wait(two, "a", other)
	var e *Error
	if err := errors.Join(<-errs, <-errs); !errors.As(err, &e) ||
		e.Code != "DEADLOCK" || len(e.Cycle) != 2 {
		t.Error(err)
	}
}

func TestDetached(t *testing.T) {
	address, _ := newRig(t).broker()
	c, other := dial(t, address), dial(t, address)
	ctx := within(t, 20*time.Second)
	lock, err := c.LockDetached(ctx, "a", time.Minute, Note("n"))
	if err != nil || lock.Left() < 58*time.Second {
		t.Fatal(lock, err)
	}
	c.Close()
	_, err = other.Await(ctx, "a", Wait(0))
	expect(t, err, ErrBusy)
	waited := make(chan Free)
	go func() {
		free, err := other.Await(ctx, "a")
		expect(t, err, nil)
		waited <- free
	}()
	same := other.Detached("a", lock.Fence())
	expect(t, same.Renew(ctx, time.Hour), nil)
	if same.Left() < 58*time.Minute {
		t.Error(same.Left())
	}
	expect(t, other.Detached("a", 1).Unlock(ctx), ErrNotHeld)
	expect(t, same.Unlock(ctx), nil)
	if free := <-waited; free.Fence != lock.Fence() {
		t.Error(free)
	}
}

func TestWatch(t *testing.T) {
	address, _ := newRig(t).broker()
	c := dial(t, address)
	ctx, cancel := context.WithCancel(within(t, 20*time.Second))
	states := make(chan Holder, 9)
	watching := func() {
		c.Watch(ctx, "a")(func(h Holder, err error) bool {
			expect(t, err, nil)
			states <- h
			return true
		})
		close(states)
	}
	go watching()
	if h := <-states; h.Held {
		t.Error(h)
	}
	lock := must(t)(c.Lock(ctx, "a", Note("here")))
	h := <-states
	if !h.Held || h.Note != "here" || h.Fence != lock.Fence() {
		t.Error(h)
	}
	expect(t, lock.SetNote(ctx, "there"), nil)
	if h := <-states; h.Note != "there" {
		t.Error(h)
	}
	c.Watch(ctx, "a")(func(h Holder, err error) bool { // beside the first
		if h.Note != "there" || err != nil {
			t.Error(h, err)
		}
		return false
	})
	c.Members(ctx, "a")(func(_ []Member, err error) bool {
		expect(t, err, ErrConflict)
		return true
	})
	cancel()
	if h, more := <-states; more {
		t.Error(h)
	}
}

func TestMembers(t *testing.T) {
	address, _ := newRig(t).broker()
	c := dial(t, address, Name("me"))
	ctx := within(t, 20*time.Second)
	w1 := must(t)(c.Lock(ctx, "workers", Shared(), Note("w1")))
	var w2 *Lock
	var seen []string
	c.Members(ctx, "workers")(func(members []Member, err error) bool {
		expect(t, err, nil)
		notes := ""
		for _, m := range members {
			notes += m.Note
		}
		seen = append(seen, notes)
		switch len(seen) {
		case 1:
			w2 = must(t)(c.Lock(ctx, "workers", Shared(), Note("w2")))
		case 2:
			if members[0].Client != "me" || members[1].Fence != w2.Fence() {
				t.Error(members)
			}
			expect(t, w1.Unlock(ctx), nil)
		}
		return len(seen) < 3
	})
	if want := []string{"w1", "w1w2", "w2"}; !reflect.DeepEqual(seen, want) {
		t.Error(seen)
	}
}

func TestWantedAndRenew(t *testing.T) {
	address, _ := newRig(t).broker()
	c := dial(t, address)
	ctx := within(t, 20*time.Second)
	lock := must(t)(c.Lock(ctx, "a", Wanted(), Lease(time.Minute)))
	expect(t, lock.Renew(ctx, time.Hour), nil)
	next := make(chan error)
	go func() {
		_, err := c.Lock(ctx, "a")
		next <- err
	}()
	if n := <-lock.Wanted(); n != 1 {
		t.Error(n)
	}
	expect(t, lock.Unlock(ctx, UnlockDelay(time.Millisecond)), nil)
	expect(t, <-next, nil)
	if _, more := <-lock.Wanted(); more {
		t.Error("the channel of a released lock is open")
	}
}

func TestWorkOfALeaderEndsWithAnErrorOfItsOwn(t *testing.T) {
	address, _ := newRig(t).broker()
	ctx := within(t, 20*time.Second)
	c := dial(t, address)
	other, err := c.Lock(ctx, "of work")
	expect(t, err, nil)
	expect(t, other.Renew(ctx, 50*time.Millisecond), nil)
	<-other.Context().Done()
	times := 0
	err = c.Lead(ctx, "leader", func(context.Context, *Lock) error {
		times++
		return other.Check()
	})
	expect(t, err, ErrLost)
	if times != 1 {
		t.Errorf("the work ran %d times", times)
	}
}

func TestLead(t *testing.T) {
	address, _ := newRig(t).broker()
	ctx := within(t, 20*time.Second)
	var mu sync.Mutex
	epochs := map[uint64]int{}
	var all sync.WaitGroup
	for i := 0; i < 3; i++ {
		c, i := dial(t, address), i
		all.Add(1)
		go func() {
			defer all.Done()
			lost := false
			err := c.Lead(ctx, "leader", func(ctx context.Context,
				lock *Lock) error {
				mu.Lock()
				epochs[lock.Fence()] = i
				mu.Unlock()
				if !lost && i == 0 { // the lease ends, and it leads again
					lost = true
					expect(t, lock.Renew(ctx, 50*time.Millisecond), nil)
					<-ctx.Done()
					expect(t, context.Cause(ctx), ErrLost)
					return errors.New("not told")
				}
				return fmt.Errorf("done %d", i)
			})
			if err == nil || err.Error() != fmt.Sprintf("done %d", i) {
				t.Error(err)
			}
		}()
	}
	all.Wait()
	if len(epochs) != 4 {
		t.Error(epochs)
	}
}

func TestHooks(t *testing.T) {
	address, _ := newRig(t).broker()
	ctx := within(t, 20*time.Second)
	lost := make(chan error, 1)
	var waits, grants, refusals int
	c := dial(t, address, WithHooks(Hooks{
		OnWait: func(context.Context, []string) { waits++ },
		OnGrant: func(_ context.Context, _ []string, _ time.Duration,
			err error) {
			if err == nil {
				grants++
			} else {
				refusals++
			}
		},
		OnLost: func(_ *Lock, why error) { lost <- why },
	}))
	must(t)(c.Lock(ctx, "a", Lease(50*time.Millisecond)))
	_, err := c.Lock(ctx, "a", Wait(0))
	expect(t, err, ErrBusy)
	expect(t, <-lost, ErrLost)
	if waits != 2 || grants != 1 || refusals != 1 {
		t.Error(waits, grants, refusals)
	}
}

func TestUsage(t *testing.T) {
	address, _ := newRig(t).broker()
	c := dial(t, address)
	ctx := within(t, 20*time.Second)
	for i, opts := range [][]LockOption{{Wait(-1)}, {Lease(0)}, {Note("")},
		{Semaphore(1, 2)}, {Semaphore(0, 1)}, {Delay(25 * time.Hour)}} {
		_, err := c.Lock(ctx, "a", opts...)
		if !errors.Is(err, ErrUsage) {
			t.Error(i, err)
		}
	}
	_, err := c.Lock(ctx, "")
	expect(t, err, ErrUsage)
	_, err = c.Lock(WithOwner(ctx, "~1"), "a")
	expect(t, err, ErrUsage)
	for _, address := range []string{"", "a:b:c", "a,,b", "a:99999", "a:0",
		"a:http", "tcp://a:4653"} {
		_, err := Dial(ctx, address)
		expect(t, err, ErrUsage)
	}
	_, err = Dial(ctx, address, User("", "s"))
	expect(t, err, ErrUsage)
	_, err = Dial(ctx, address, TLS(&tls.Config{}))
	expect(t, err, ErrTLS)
	if !strings.Contains(err.Error(), address) {
		t.Error(err)
	}
	_, err = Dial(ctx, address, Heartbeat(time.Millisecond))
	expect(t, err, ErrUsage)
}
