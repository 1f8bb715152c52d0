package holdfast

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"
)

func TestLockUnlock(t *testing.T) {
	address, _ := newRig(t).broker()
	c, other := dial(t, address), dial(t, address)
	ctx := within(t, 20*time.Second)
	lock, err := c.Lock(ctx, "a b=%", Note("n"))
	if err != nil || lock.Fence() == 0 || lock.Check() != nil {
		t.Fatal(lock, err)
	}
	if left := lock.Left(); left < 4*time.Second || left > 6*time.Second {
		t.Errorf("left %v of three heartbeats", left)
	}
	if _, err := c.Lock(ctx, "a b=%", Wait(0)); !errors.Is(err, ErrBusy) {
		t.Errorf("a second lock of the same client: %v", err)
	}
	var e *Error
	_, err = other.Lock(ctx, "a b=%", Wait(0))
	if !errors.As(err, &e) || e.Code != "BUSY" || e.Note != "n" || !e.Retry {
		t.Errorf("%v", err)
	}
	_, err = other.Lock(ctx, "a b=%", Wait(50*time.Millisecond))
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("%v", err)
	}
	granted := make(chan *Lock)
	go func() {
		l, err := other.Lock(ctx, "a b=%")
		if err != nil {
			t.Error(err)
		}
		granted <- l
	}()
	held := lock.Context()
	if err := lock.Unlock(ctx); err != nil {
		t.Error(err)
	}
	<-held.Done()
	if errors.Is(context.Cause(held), ErrLost) {
		t.Error("a released lock is lost")
	}
	next := <-granted
	if next.Fence() <= lock.Fence() {
		t.Error("fences", lock.Fence(), next.Fence())
	}
	if err := lock.Unlock(ctx); !errors.Is(err, ErrNotHeld) {
		t.Error("released twice:", err)
	}
	if err := next.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

func TestCancelledWaitHoldsNothing(t *testing.T) {
	address, _ := newRig(t).broker()
	c := dial(t, address)
	ctx := within(t, 20*time.Second)
	lock, err := c.Lock(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 20; i++ {
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		if l, err := c.Lock(short, "a"); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Fatal(l, err)
		}
		cancel()
	}
	if err := lock.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if lock, err = c.Lock(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestLossByEvent(t *testing.T) {
	address, _ := newRig(t).broker()
	c := dial(t, address)
	ctx := within(t, 20*time.Second)
	lock, err := c.Lock(ctx, "a", Lease(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	held := lock.Context()
	select {
	case <-held.Done():
	case <-ctx.Done():
		t.Fatal("no loss")
	}
	var e *Error
	if cause := context.Cause(held); !errors.As(cause, &e) ||
		!errors.Is(cause, ErrLost) || e.Name != "a" {
		t.Error(cause)
	}
	if err := lock.Check(); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	if err := lock.Unlock(ctx); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
}

func TestLossByDeadline(t *testing.T) {
	address, broker := newRig(t).broker()
	c := dial(t, address, Heartbeat(200*time.Millisecond))
	ctx := within(t, 20*time.Second)
	lock, err := c.Lock(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // PINGs move the deadline on
	if err := lock.Check(); err != nil {
		t.Fatal(err)
	}
	held := lock.Context()
	broker.Process.Signal(syscall.SIGSTOP)
	begin := time.Now()
	<-held.Done()
	if took := time.Since(begin); took > 700*time.Millisecond {
		t.Errorf("lost after %v, by three heartbeats of 200 ms", took)
	}
	var e *Error
	if !errors.As(context.Cause(held), &e) || e.Reason != "deadline" {
		t.Error(context.Cause(held))
	}
	broker.Process.Signal(syscall.SIGCONT)
	if _, err := c.Lock(ctx, "a", Wait(5*time.Second)); err != nil &&
		!errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if _, err := c.Lock(ctx, "b"); err != nil {
		t.Error("after the end of the session:", err)
	}
}

func TestLossBySession(t *testing.T) {
	address, broker := newRig(t).broker()
	c := dial(t, address)
	ctx := within(t, 20*time.Second)
	lock, err := c.Lock(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	wait := make(chan error)
	go func() {
		_, err := c.Lock(ctx, "a")
		wait <- err
	}()
	broker.Process.Kill()
	<-lock.Context().Done()
	if err := <-wait; !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if _, err := c.Lock(ctx, "a"); !errors.Is(err, ErrGone) {
		t.Error("no broker:", err)
	}
}

func TestClose(t *testing.T) {
	address, _ := newRig(t).broker()
	c, other := dial(t, address), dial(t, address)
	ctx := within(t, 20*time.Second)
	lock, err := c.Lock(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	wait := make(chan error)
	go func() {
		_, err := c.Lock(ctx, "a")
		wait <- err
	}()
	time.Sleep(20 * time.Millisecond)
	c.Close()
	if err := <-wait; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := lock.Check(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := c.Lock(ctx, "a"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := other.Lock(ctx, "a", Wait(time.Second)); err != nil {
		t.Error(err)
	}
}
