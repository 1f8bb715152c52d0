// Package examples runs each example as a user does.
package examples

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// broker is the address of `holdfastd --dev`.
var broker string

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
	_, broker, _ = strings.Cut(strings.TrimSpace(line), "listening on ")
	code := m.Run()
	cmd.Process.Kill()
	cmd.Wait()
	os.Exit(code)
}

// run builds an example, and returns its output.
func run(t *testing.T, name string) string {
	t.Parallel()
	program := filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-o", program, "./"+name)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-broker", broker)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return string(out)
}

// number is a submatch that is one.
func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestLeader(t *testing.T) {
	out := run(t, "leader")
	found := regexp.MustCompile(`followers: (\S+) leads, epoch (\d+): SIGKILL` +
		`(?s:.*)followers: (\S+) leads, epoch (\d+), (\S+) after`).
		FindStringSubmatch(out)
	if found == nil {
		t.Fatal("no hand-over")
	}
	if found[1] == found[3] || number(t, found[2]) >= number(t, found[4]) {
		t.Error(found[1:])
	}
	// Without the end of the connection it would take three heartbeats, 6 s.
	if took, err := time.ParseDuration(found[5]); err != nil ||
		took > 4*time.Second {
		t.Error(found[5])
	}
}

func TestRateLimit(t *testing.T) {
	found := regexp.MustCompile(`served (\d+), refused (\d+), failed 0 in ` +
		`(\S+) s; the limit is (\d+)`).FindStringSubmatch(run(t, "ratelimit"))
	if found == nil {
		t.Fatal("no counts")
	}
	served, refused := number(t, found[1]), number(t, found[2])
	most := number(t, found[4]) * float64(1+int(number(t, found[3])))
	if served > most || served < 5 || refused == 0 {
		t.Error("at most", most)
	}
}

func TestCron(t *testing.T) {
	found := regexp.MustCompile(`(?m)^(\S+) (\S+) reports, fence (\d+)$`).
		FindAllStringSubmatch(run(t, "cron"), -1)
	if len(found) < 3 {
		t.Error(len(found), "runs")
	}
	for i := 1; i < len(found); i++ {
		if found[i][1] == found[i-1][1] ||
			number(t, found[i][3]) <= number(t, found[i-1][3]) {
			t.Error(found[i-1], found[i])
		}
	}
}
