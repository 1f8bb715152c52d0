// Command bench measures pairs of lock and unlock a second, beside redsync, in
// one run on one Redis server. It has a module of its own, so the client needs
// nothing but the standard library.
//
//	go run . [-time 3s] [-users 1,32,64] [-holdfastd PATH]
//
// Each goroutine has a lock of its own, and then all have one lock in common.
// A hand-over is the time from the call that releases the lock to the return of
// the next call that takes it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	holdfast "holdfast.example/proto/clients/go"
)

// take takes a lock and returns what releases it.
type take func(ctx context.Context, name string) (func() error, error)

func cpu() time.Duration {
	var use syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &use)
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// run has users take locks until the time is over.
func run(what string, take take, users int, one bool, seconds time.Duration) {
	var pairs, failures, released atomic.Int64
	var all sync.WaitGroup
	var mu sync.Mutex
	var times []time.Duration
	begin, used := time.Now(), cpu()
	ctx := context.Background()
	for i := 0; i < users; i++ {
		name := "one"
		if !one {
			name = "lock/" + strconv.Itoa(i)
		}
		all.Add(1)
		go func() {
			defer all.Done()
			var own []time.Duration
			for time.Since(begin) < seconds {
				release, err := take(ctx, name)
				if err != nil {
					failures.Add(1)
					continue
				}
				now := time.Since(begin)
				if at := released.Swap(0); one && at > 0 {
					own = append(own, now-time.Duration(at))
				}
				released.Store(int64(time.Since(begin)))
				if release() != nil {
					failures.Add(1)
				}
				pairs.Add(1)
			}
			mu.Lock()
			times = append(times, own...)
			mu.Unlock()
		}()
	}
	all.Wait()
	took := time.Since(begin)
	kind := "own locks"
	if one {
		kind = "one lock"
	}
	count := max(pairs.Load(), 1)
	fmt.Printf("%-9s %-9s %3d users %7.0f pairs/s %4d us CPU/pair", what, kind,
		users, float64(pairs.Load())/took.Seconds(),
		(cpu()-used).Microseconds()/count)
	if n := len(times); one && n > 0 {
		slices.Sort(times)
		fmt.Printf("  hand-over p50 %d us, p99 %d us",
			times[n/2].Microseconds(), times[n*99/100].Microseconds())
	}
	fmt.Printf("  %d failures\n", failures.Load())
}

func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs a server until it can be reached.
func start(address, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	for i := 0; i < 1000; i++ {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return cmd
		}
		time.Sleep(10 * time.Millisecond)
	}
	log.Fatal("no answer of ", path)
	return nil
}

// servers starts Redis and a broker, in a folder.
func servers(daemon, folder string) (redis, broker string, stop func()) {
	redis, broker = freeAddress(), freeAddress()
	_, port, _ := net.SplitHostPort(redis)
	one := start(redis, "redis-server", "--port", port, "--bind", "127.0.0.1",
		"--dir", folder, "--save", "", "--maxmemory-policy", "noeviction",
		"--logfile", "/dev/null")
	config := filepath.Join(folder, "holdfast.yaml")
	text := fmt.Sprintf("listen: {tcp: [%q]}\nadmin: {http: \"\"}\n"+
		"redis: {topology: single, nodes: [%q], settle: 0s}\n"+
		"log: {level: warn}\n", broker, redis)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}
	two := start(broker, daemon, "-c", config)
	return redis, broker, func() {
		two.Process.Kill()
		one.Process.Kill()
		two.Wait()
		one.Wait()
	}
}

func main() {
	seconds := flag.Duration("time", 3*time.Second, "of each measurement")
	users := flag.String("users", "1,32,64", "goroutines")
	daemon := flag.String("holdfastd", "../../../../build/holdfastd", "")
	flag.Parse()
	folder, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	address, broker, stop := servers(*daemon, folder)
	defer stop()

	client, err := holdfast.Dial(context.Background(), broker)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	pool := redis.NewClient(&redis.Options{Addr: address, PoolSize: 64})
	defer pool.Close()
	sync := redsync.New(goredis.NewPool(pool))
	takes := map[string]take{
		"holdfast": func(ctx context.Context, name string) (func() error,
			error) {
			lock, err := client.Lock(ctx, name)
			return func() error { return lock.Unlock(ctx) }, err
		},
		"redsync": func(ctx context.Context, name string) (func() error,
			error) {
			lock := sync.NewMutex("redsync/"+name, redsync.WithTries(1000),
				redsync.WithExpiry(30*time.Second))
			return func() error {
				_, err := lock.UnlockContext(ctx)
				return err
			}, lock.LockContext(ctx)
		},
	}
	for _, text := range strings.Split(*users, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			log.Fatal(err)
		}
		for _, one := range []bool{false, true} {
			for _, what := range []string{"holdfast", "redsync"} {
				run(what, takes[what], n, one, *seconds)
			}
		}
	}
}
