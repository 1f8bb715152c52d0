package holdfast

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// A broker that grants each LOCK, and ends the connection at a RENEW. After
// the first connection it greets once it may. It tells the RENEWs.
func endsAtRenew(t *testing.T, greets <-chan bool) (string, <-chan string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	renewals := make(chan string, 9)
	serve := func(conn net.Conn) {
		defer conn.Close()
		fmt.Fprint(conn, "* HELLO proto=1 server=x session=s\n")
		for in := bufio.NewScanner(conn); in.Scan(); {
			words := strings.Fields(in.Text())
			if len(words) < 2 { // QUIT
				return
			}
			switch words[1] {
			case "LOCK":
				fmt.Fprintf(conn, "%s OK fence=7 ttl_ms=60000 count=1\n",
					words[0])
			case "RENEW":
				renewals <- in.Text()
				return
			default:
				fmt.Fprintf(conn, "%s OK session=s ttl_ms=10000\n", words[0])
			}
		}
	}
	go func() {
		for first := true; ; first = false {
			conn, err := l.Accept()
			if err != nil || !first && !<-greets {
				return
			}
			serve(conn)
		}
	}()
	return l.Addr().String(), renewals
}

func TestDetachedRenewThatIsCutOffBoundsTheLock(t *testing.T) {
	greets := make(chan bool)
	defer close(greets)
	ctx := context.Background()
	address, renewals := endsAtRenew(t, greets)
	c, err := Dial(ctx, address)
	expect(t, err, nil)
	defer c.Close()
	lock, err := c.LockDetached(ctx, "job", time.Minute)
	expect(t, err, nil)
	if err = lock.Renew(ctx, 2*time.Second); err == nil {
		t.Error("a RENEW without an answer succeeds")
	}
	if left := lock.Left(); left > 2*time.Second {
		t.Errorf("the broker may have ended it in 2 s, and %v are left", left)
	}
	<-renewals
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err = lock.Renew(short, time.Second); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Error(err)
	}
	greets <- true
	_, err = c.LockDetached(ctx, "next", time.Minute)
	expect(t, err, nil)
	select {
	case line := <-renewals:
		t.Errorf("nobody waits for it any more: %s", line)
	default:
	}
}
