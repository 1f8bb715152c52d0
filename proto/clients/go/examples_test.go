package holdfast_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	holdfast "holdfast.example/proto/clients/go"
)

// A client of two brokers, with users and TLS. Its session outlives a broker.
func ExampleDial() {
	dial := func(ctx context.Context) (*holdfast.Client, error) {
		pem, err := os.ReadFile("ca.pem")
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		return holdfast.Dial(ctx, "broker-1:4655,broker-2:4655",
			holdfast.TLS(&tls.Config{RootCAs: roots}),
			holdfast.User("shop", os.Getenv("SHOP_SECRET")),
			holdfast.Name("shop-7"), holdfast.Keep(30*time.Second))
	}
	_, err := dial(ctx)
	fmt.Println(errors.Is(err, os.ErrNotExist))
	// Output: true
}

// Metrics of waits and losses.
func ExampleWithHooks() {
	lost := make(chan string, 1)
	c, _ := holdfast.Dial(ctx, address, holdfast.WithHooks(holdfast.Hooks{
		OnGrant: func(_ context.Context, names []string, _ time.Duration,
			err error) {
			fmt.Println(names, err)
		},
		OnLost: func(lock *holdfast.Lock, why error) {
			lost <- fmt.Sprint(lock.Name(), " ",
				errors.Is(why, holdfast.ErrLost))
		},
	}))
	defer c.Close()
	c.Lock(ctx, "short", holdfast.Lease(300*time.Millisecond))
	fmt.Println(<-lost)
	// Output:
	// [short] <nil>
	// short true
}

// A leader that gives up after its work.
func ExampleClient_Lead() {
	c, _ := holdfast.Dial(ctx, address)
	defer c.Close()
	err := c.Lead(ctx, "leader/reports", func(ctx context.Context,
		lock *holdfast.Lock) error {
		fmt.Println("leads, with an epoch:", lock.Fence() > 0)
		return nil
	}, holdfast.Note("10.0.0.7:80"))
	fmt.Println(err)
	// Output:
	// leads, with an epoch: true
	// <nil>
}

// Calls of one request re-enter its locks.
func ExampleWithOwner() {
	c, _ := holdfast.Dial(ctx, address)
	defer c.Close()
	request := holdfast.WithOwner(ctx, "req-17")
	outer, _ := c.Lock(request, "order/1")
	inner, err := c.Lock(request, "order/1", holdfast.Wait(0))
	fmt.Println(inner.Fence() == outer.Fence(), err)
	_, err = c.Lock(ctx, "order/1", holdfast.Wait(0)) // has its own owner
	fmt.Println(errors.Is(err, holdfast.ErrBusy))
	// Output:
	// true <nil>
	// true
}

// The work ends when the lock is lost.
func ExampleLock_Context() {
	c, _ := holdfast.Dial(ctx, address)
	defer c.Close()
	lock, _ := c.Lock(ctx, "job", holdfast.Lease(300*time.Millisecond))
	<-lock.Context().Done()
	fmt.Println(errors.Is(context.Cause(lock.Context()), holdfast.ErrLost))
	// Output: true
}

// A lock that ends by itself, unless it is renewed.
func ExampleLock_Renew() {
	c, _ := holdfast.Dial(ctx, address)
	defer c.Close()
	lock, _ := c.Lock(ctx, "upload", holdfast.Lease(time.Second))
	err := lock.Renew(ctx, time.Minute)
	fmt.Println(lock.Check(), err)
	// Output: <nil> <nil>
}

// A reader that becomes the writer.
func ExampleLock_Upgrade() {
	c, _ := holdfast.Dial(ctx, address)
	defer c.Close()
	reader, _ := c.Lock(ctx, "sheet", holdfast.Upgradable())
	writer, _ := reader.Upgrade(ctx)
	fmt.Println(writer.Fence() > reader.Fence())
	writer.Unlock(ctx)
	fmt.Println(reader.Check()) // it reads on
	// Output:
	// true
	// <nil>
}

// Nobody gets the lock for a minute after a short run.
func ExampleUnlockDelay() {
	c, _ := holdfast.Dial(ctx, address)
	defer c.Close()
	lock, _ := c.Lock(ctx, "cron/hourly")
	fmt.Println(lock.Unlock(ctx, holdfast.UnlockDelay(time.Minute)))
	_, err := c.Lock(ctx, "cron/hourly", holdfast.Wait(0))
	fmt.Println(errors.Is(err, holdfast.ErrBusy))
	// Output:
	// <nil>
	// true
}

// One process takes a lock, and another one releases it.
func ExampleClient_LockDetached() {
	c, _ := holdfast.Dial(ctx, address)
	taken, _ := c.LockDetached(ctx, "import", time.Hour)
	c.Close()
	other, _ := holdfast.Dial(ctx, address)
	defer other.Close()
	fmt.Println(other.Detached("import", taken.Fence()).Unlock(ctx))
	// Output: <nil>
}

// The holder and the reason are in the error.
func ExampleError() {
	c, _ := holdfast.Dial(ctx, address)
	defer c.Close()
	c.Lock(ctx, "taken", holdfast.Note("inventory"))
	_, err := c.Lock(ctx, "taken", holdfast.Wait(0))
	var e *holdfast.Error
	if errors.As(err, &e) {
		fmt.Println(e.Code, e.Name, e.Note, e.Retry)
	}
	// Output: BUSY taken inventory true
}
