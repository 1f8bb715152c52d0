package holdfast

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// rig is a Redis server, and brokers before it.
type rig struct {
	t     testing.TB
	redis string
}

// daemon is the program under test: $HOLDFASTD, or build/holdfastd.
func daemon(t testing.TB) string {
	path := os.Getenv("HOLDFASTD")
	if path == "" {
		path, _ = filepath.Abs("../../../build/holdfastd")
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no holdfastd: %v", err)
	}
	return path
}

func freeAddress(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs a program until the end of the test, or of the returned process.
func start(t testing.TB, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Skipf("%v", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// reachable waits for a server.
func reachable(t testing.TB, address string) {
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		var conn net.Conn
		if conn, err = net.Dial("tcp", address); err == nil {
			conn.Close()
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal(err)
}

func newRig(t testing.TB) *rig {
	daemon(t)
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	start(t, "redis-server", "--port", port, "--bind", "127.0.0.1", "--dir",
		t.TempDir(), "--save", "", "--maxmemory-policy", "noeviction",
		"--loglevel", "warning", "--logfile", "/dev/null")
	reachable(t, address)
	return &rig{t, address}
}

// broker starts one more broker before the rig's Redis.
func (r *rig) broker() (string, *exec.Cmd) {
	address := freeAddress(r.t)
	config := filepath.Join(r.t.TempDir(), "holdfast.yaml")
	text := fmt.Sprintf("listen: {tcp: [%q]}\nadmin: {http: \"\"}\n"+
		"redis: {topology: single, nodes: [%q], settle: 0s}\n"+
		"log: {level: warn}\n", address, r.redis)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	cmd := start(r.t, daemon(r.t), "-c", config)
	reachable(r.t, address)
	return address, cmd
}

// within is a context for one test.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// dial is a client that is closed with the test.
func dial(t testing.TB, address string, opts ...Option) *Client {
	c, err := Dial(within(t, 10*time.Second), address, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
