package holdfast

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestSessionGoesOnAtAnotherBroker(t *testing.T) {
	r := newRig(t)
	a, first := r.broker()
	b, second := r.broker()
	moved := make(chan string, 1)
	c := dial(t, a+","+b, Keep(10*time.Second), WithHooks(Hooks{
		OnMove: func(address string) { moved <- address }}))
	ctx := within(t, 30*time.Second)
	held := must(t)(c.Lock(ctx, "a", Note("n")))
	next := make(chan *Lock)
	go func() { next <- must(t)(c.Lock(ctx, "a")) }()
	brokers := map[string]func(){
		a: func() { first.Process.Kill() }, b: func() { second.Process.Kill() }}
	brokers[c.Address()]()
	<-moved
	expect(t, held.Check(), nil)
	expect(t, held.SetNote(ctx, "here"), nil)
	expect(t, held.Unlock(ctx), nil)
	lock := <-next
	if lock.Fence() <= held.Fence() {
		t.Error("fences", held.Fence(), lock.Fence())
	}
}

func TestDrainIsNotTold(t *testing.T) {
	r := newRig(t)
	a, first := r.broker()
	b, second := r.broker()
	moved := make(chan string, 1)
	c := dial(t, a+","+b, Keep(10*time.Second), WithHooks(Hooks{
		OnMove: func(address string) { moved <- address }}))
	ctx := within(t, 30*time.Second)
	held := must(t)(c.Lock(ctx, "a"))
	process := first
	if c.Address() == b {
		process = second
	}
	process.Process.Signal(syscall.SIGTERM)
	for i := 0; i < 100; i++ {
		lock := must(t)(c.Lock(ctx, "b"))
		expect(t, lock.Unlock(ctx), nil)
	}
	<-moved
	expect(t, held.Unlock(ctx), nil)
}

// TestManyGoroutines has goroutines of two clients exclude one another.
func TestManyGoroutines(t *testing.T) {
	address, _ := newRig(t).broker()
	clients := []*Client{dial(t, address), dial(t, address)}
	ctx := within(t, 60*time.Second)
	var inside, last, grants atomic.Uint64
	var all sync.WaitGroup
	for i := 0; i < 32; i++ {
		i := i
		all.Add(1)
		go func() {
			defer all.Done()
			for n := 0; n < 20; n++ {
				wait, cancel := context.WithTimeout(ctx,
					time.Duration(1+(i*n)%40)*time.Millisecond)
				lock, err := clients[i%2].Lock(wait, "a")
				cancel()
				if err != nil {
					continue
				}
				if inside.Add(1) != 1 || lock.Fence() < last.Load() {
					t.Error("two holders, or an older fence")
				}
				last.Store(lock.Fence())
				grants.Add(1)
				inside.Add(^uint64(0))
				expect(t, lock.Unlock(ctx), nil)
			}
		}()
	}
	all.Wait()
	if grants.Load() == 0 {
		t.Error("nobody was granted the lock")
	}
	expect(t, must(t)(clients[0].Lock(ctx, "a")).Unlock(ctx), nil)
}

func TestNoGoroutineIsLeft(t *testing.T) {
	address, _ := newRig(t).broker()
	before := runtime.NumGoroutine()
	ctx := within(t, 20*time.Second)
	for i := 0; i < 5; i++ {
		c, err := Dial(ctx, address)
		expect(t, err, nil)
		lock := must(t)(c.Lock(ctx, "a"))
		lock.Context()
		go c.Watch(ctx, "a")(func(Holder, error) bool { return true })
		go c.Lock(ctx, "a")
		c.Close()
	}
	end := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<16)
			t.Fatal(string(stacks[:runtime.Stack(stacks, true)]))
		}
		time.Sleep(time.Millisecond)
	}
}

// fake is a broker that greets, answers HELLO, and then says what it is told.
func fake(t *testing.T, says func(conn net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("* HELLO proto=1 server=s session=s1\n"))
			hello, _ := bufio.NewReader(conn).ReadString('\n')
			tag, _, _ := strings.Cut(hello, " ")
			conn.Write([]byte(tag + " OK session=s1 proto=1\n"))
			says(conn)
			conn.Close()
		}
	}()
	return l.Addr().String()
}

func TestGarbage(t *testing.T) {
	blanks := bytes.Repeat([]byte("x"), 1<<20)
	for name, says := range map[string]func(conn net.Conn){
		"bytes":     func(conn net.Conn) { conn.Write([]byte("\xff\x00\n")) },
		"wrong tag": func(conn net.Conn) { conn.Write([]byte("77 OK\n")) },
		"no end": func(conn net.Conn) {
			for {
				if _, err := conn.Write(blanks); err != nil {
					return
				}
			}
		},
	} {
		says := says
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{})
			c := dial(t, fake(t, func(conn net.Conn) {
				<-asked
				says(conn)
			}))
			ctx := within(t, 10*time.Second)
			w, err := c.submit(ctx, ask(ctx, []string{"a"}, nil).lock(), nil)
			expect(t, err, nil)
			close(asked)
			err = c.wait(ctx, w)
			expect(t, err, ErrProtocol)
			if !strings.Contains(err.Error(), c.Address()) {
				t.Error(err)
			}
		})
	}
}
