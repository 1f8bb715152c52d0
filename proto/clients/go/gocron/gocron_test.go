package holdfastgocron_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	holdfast "holdfast.example/proto/clients/go"
	holdfastgocron "holdfast.example/proto/clients/go/gocron"
)

// address is that of `holdfastd --dev`.
var address string

// TestMain starts a broker, which ends with this process.
func TestMain(m *testing.M) {
	path := os.Getenv("HOLDFASTD")
	if path == "" {
		path = "../../../../build/holdfastd"
	}
	cmd := exec.Command(path, "--dev=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Println("no tests:", err)
		os.Exit(1)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	_, address, _ = strings.Cut(strings.TrimSpace(line), "listening on ")
	code := m.Run()
	cmd.Process.Kill()
	cmd.Wait()
	os.Exit(code)
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// node is the client of one host.
func node(t *testing.T) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Dial(within(t, 10*time.Second), address)
	need(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for a state of this process.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// refusals are of Lockers and Electors, which it wraps.
type refusals chan error

func (r refusals) tell(err error) error {
	if err != nil {
		r <- err
	}
	return err
}

type locker struct {
	gocron.Locker
	refusals
}

func (l locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lock, err := l.Locker.Lock(ctx, key)
	return lock, l.tell(err)
}

type elector struct {
	*holdfastgocron.Elector
	refusals
}

func (e elector) IsLeader(ctx context.Context) error {
	return e.tell(e.Elector.IsLeader(ctx))
}

// schedule has a node run the job once.
func schedule(t *testing.T, job func(), options []gocron.SchedulerOption,
	more ...gocron.JobOption) {
	s, err := gocron.NewScheduler(options...)
	need(t, err)
	t.Cleanup(func() { need(t, s.Shutdown()) })
	_, err = s.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(job),
		append(more, gocron.WithName(t.Name()),
			gocron.WithStartAt(gocron.WithStartImmediately()),
			gocron.WithLimitedRuns(1))...)
	need(t, err)
	s.Start()
}

// TestThreeSchedulers is gocron's own test of distributed schedulers. The run
// ends when the other two have been refused: so it is the only one.
func TestThreeSchedulers(t *testing.T) {
	for _, kind := range []string{"elector", "locker", "locker of the job"} {
		kind := kind
		t.Run(kind, func(t *testing.T) {
			refused, done := make(refusals, 9), make(chan error, 9)
			job := func() { done <- errors.Join(<-refused, <-refused) }
			for i := 0; i < 3; i++ {
				c := node(t)
				l := locker{holdfastgocron.NewLocker(c), refused}
				switch kind {
				case "elector":
					e := holdfastgocron.NewElector(c, t.Name())
					t.Cleanup(e.Close)
					if i == 0 {
						until(t, "a leader", func() bool {
							return e.IsLeader(nil) == nil
						})
					}
					schedule(t, job, []gocron.SchedulerOption{
						gocron.WithDistributedElector(elector{e, refused})})
				case "locker":
					schedule(t, job, []gocron.SchedulerOption{
						gocron.WithDistributedLocker(l)})
				default:
					schedule(t, job, nil, gocron.WithDistributedJobLocker(l))
				}
			}
			want := holdfast.ErrBusy
			if kind == "elector" {
				want = holdfastgocron.ErrNotLeader
			}
			select {
			case err := <-done:
				if !errors.Is(err, want) {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("no run, or several")
			}
		})
	}
}

func TestShortRunsKeepTheLock(t *testing.T) {
	const least = 400 * time.Millisecond
	ctx, other := within(t, 20*time.Second), node(t)
	for _, d := range []time.Duration{0, least} {
		l := holdfastgocron.NewLocker(node(t), holdfastgocron.AtLeast(d),
			holdfastgocron.Prefix("short/"))
		began := time.Now()
		lock, err := l.Lock(ctx, "job")
		need(t, err)
		need(t, lock.Unlock(ctx))
		next, err := other.Lock(ctx, "short/job", holdfast.Wait(0))
		if d == 0 {
			need(t, err)
			need(t, next.Unlock(ctx))
			continue
		}
		if !errors.Is(err, holdfast.ErrBusy) {
			t.Error(err)
		}
		_, err = other.Lock(ctx, "short/job")
		need(t, err)
		if took := time.Since(began); took < least {
			t.Error("free after", took)
		}
	}
}

func TestLongRunsHaveNoDelay(t *testing.T) {
	ctx, other := within(t, 20*time.Second), node(t)
	l := holdfastgocron.NewLocker(node(t),
		holdfastgocron.AtLeast(20*time.Millisecond))
	lock, err := l.Lock(ctx, "long")
	need(t, err)
	time.Sleep(20 * time.Millisecond)
	need(t, lock.Unlock(ctx))
	_, err = other.Lock(ctx, "gocron/long", holdfast.Wait(0))
	need(t, err)
}

func TestRunHasItsFence(t *testing.T) {
	ctx := within(t, 20*time.Second)
	l := holdfastgocron.NewLocker(node(t), holdfastgocron.AtLeast(0),
		holdfastgocron.LockOptions(holdfast.Lease(300*time.Millisecond)))
	first, err := l.Lock(ctx, "fence")
	need(t, err)
	held := l.Held("fence")
	<-held.Context().Done()
	second, err := l.Lock(ctx, "fence")
	need(t, err)
	if err := first.Unlock(ctx); !errors.Is(err, holdfast.ErrLost) {
		t.Error(err)
	}
	if now := l.Held("fence"); now == nil || now.Fence() <= held.Fence() {
		t.Error(now, held)
	}
	second.Unlock(ctx)
	if l.Held("fence") != nil {
		t.Error("it is held after the run")
	}
	if _, err := l.Lock(ctx, ""); err != nil {
		t.Error(err)
	}
}

// TestEndedContextReleases is what gocron does at Shutdown.
func TestEndedContextReleases(t *testing.T) {
	l := holdfastgocron.NewLocker(node(t), holdfastgocron.AtLeast(0))
	ctx, cancel := context.WithCancel(within(t, 20*time.Second))
	lock, err := l.Lock(ctx, "ended")
	need(t, err)
	cancel()
	lock.Unlock(ctx)
	_, err = node(t).Lock(within(t, 20*time.Second), "gocron/ended")
	need(t, err)
}

// ask sends one line to the broker, and reads the answer.
func ask(t *testing.T, line string) string {
	conn, err := net.Dial("tcp", address)
	need(t, err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	in.ReadString('\n')
	fmt.Fprintln(conn, line)
	answer, err := in.ReadString('\n')
	need(t, err)
	return answer
}

func TestElectorGivesUp(t *testing.T) {
	first, second := node(t), node(t)
	a := holdfastgocron.NewElector(first, "e", holdfast.Note("a"))
	defer a.Close()
	until(t, "a leads", func() bool { return a.IsLeader(nil) == nil })
	b := holdfastgocron.NewElector(second, "e", holdfast.Note("b"))
	defer b.Close()
	fence := a.Held().Fence()
	until(t, "b waits", func() bool {
		return strings.Contains(ask(t, "LOCKS prefix=e"), "waiters=1")
	})
	if err := b.IsLeader(nil); err != holdfastgocron.ErrNotLeader {
		t.Error(err)
	}
	lost := a.Held().Context()
	if answer := ask(t, "BREAK e"); !strings.HasPrefix(answer, "- OK") {
		t.Fatal(answer)
	}
	<-lost.Done()
	if a.IsLeader(nil) == nil {
		t.Error("the leader does not give up")
	}
	until(t, "b leads", func() bool { return b.IsLeader(nil) == nil })
	if b.Held().Fence() <= fence {
		t.Error("the epoch does not grow")
	}
	b.Close()
	if b.IsLeader(nil) == nil || b.Held() != nil {
		t.Error("b leads after Close")
	}
	until(t, "a leads again", func() bool { return a.IsLeader(nil) == nil })
	first.Close()
	until(t, "the end of the client", func() bool {
		return errors.Is(a.IsLeader(nil), holdfast.ErrClosed)
	})
}

func TestElectorTellsWhyItEnded(t *testing.T) {
	e := holdfastgocron.NewElector(node(t), "")
	defer e.Close()
	until(t, "an error", func() bool {
		return errors.Is(e.IsLeader(nil), holdfast.ErrUsage)
	})
}

func TestNoGoroutineIsLeft(t *testing.T) {
	c := node(t)
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	for i := 0; i < 5; i++ {
		e := holdfastgocron.NewElector(c, "left")
		all.Add(1)
		go func() {
			defer all.Done()
			e.Close()
		}()
	}
	all.Wait()
	until(t, "no goroutine is left", func() bool {
		return runtime.NumGoroutine() <= before
	})
}
