package holdfast_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	holdfast "holdfast.example/proto/clients/go"
)

// address is that of `holdfastd --dev`; "": there is no holdfastd.
var address string

// TestMain starts a broker for the examples. It ends with this process.
func TestMain(m *testing.M) {
	path := os.Getenv("HOLDFASTD")
	if path == "" {
		path = "../../../build/holdfastd"
	}
	cmd := exec.Command(path, "--dev=0")
	out, err := cmd.StdoutPipe()
	if err == nil && cmd.Start() == nil {
		line, _ := bufio.NewReader(out).ReadString('\n')
		_, address, _ = strings.Cut(strings.TrimSpace(line), "listening on ")
	}
	if address == "" {
		flag.Parse()
		flag.Set("test.skip", "^Example")
	}
	code := m.Run()
	if cmd.Process != nil {
		cmd.Process.Kill()
		cmd.Wait()
	}
	os.Exit(code)
}

var ctx = context.Background()

func work(ctx context.Context, fence uint64) error {
	fmt.Println("works:", ctx.Err() == nil, fence > 0)
	return nil
}

func Example() {
	stock := func() error {
		c, err := holdfast.Dial(ctx, address, holdfast.Keep(30*time.Second))
		if err != nil {
			return err
		}
		defer c.Close()
		lock, err := c.Lock(ctx, "stock/4711", holdfast.Note("inventory"))
		if err != nil {
			return err
		}
		defer lock.Unlock(context.WithoutCancel(ctx))
		return work(lock.Context(), lock.Fence())
	}
	fmt.Println(stock())
	// Output:
	// works: true true
	// <nil>
}

func ExampleClient_Do() {
	c, _ := holdfast.Dial(ctx, address)
	defer c.Close()
	nightly := func() error {
		var err error
		err = c.Do(ctx, "nightly", func(ctx context.Context,
			lock *holdfast.Lock) error {
			return work(ctx, lock.Fence())
		}, holdfast.Wait(0))
		if errors.Is(err, holdfast.ErrBusy) {
			return nil // another process does it
		}
		return err
	}
	fmt.Println(nightly())
	lock, _ := c.Lock(ctx, "nightly")
	fmt.Println(nightly(), lock.Check())
	// Output:
	// works: true true
	// <nil>
	// <nil> <nil>
}

func ExampleClient_Lock() {
	c, _ := holdfast.Dial(ctx, address)
	defer c.Close()
	kinds := func() (int, error) {
		// all or none
		both, err := c.LockAll(ctx, []string{"from", "to"})
		// beside other readers
		reader, err := c.Lock(ctx, "report", holdfast.Shared())
		// reads, and may write
		editor, err := c.Lock(ctx, "page", holdfast.Upgradable())
		// alone, with its own fence
		writer, err := editor.Upgrade(ctx)
		// at most 5 permits are out
		permit, err := c.Lock(ctx, "api", holdfast.Semaphore(5, 2))
		// excludes "shop", not "shop/18"
		part, err := c.Lock(ctx, "shop/17", holdfast.Tree())
		// outlives this process
		held, err := c.LockDetached(ctx, "batch", time.Hour)
		// maybe in another one
		err = c.Detached("batch", held.Fence()).Unlock(ctx)
		// takes nothing
		free, err := c.Await(ctx, "batch", holdfast.Wait(time.Second))
		fmt.Println(free.Fence == held.Fence())
		return len(append(both, reader, editor, writer, permit, part)), err
	}
	fmt.Println(kinds())
	// Output:
	// true
	// 7 <nil>
}

// TestReadme compares the page with the examples, word by word.
func TestReadme(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	words := func(text string) string {
		text = strings.ReplaceAll(text, `"broker-1:4653,broker-2:4653"`,
			"address")
		return strings.Join(strings.Fields(text), " ")
	}
	examples := ""
	for _, file := range []string{"example_test.go", "example_watch_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		examples += words(string(text))
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(examples, words(code)) {
			t.Errorf("no example has\n%s", code)
		}
	}
	if len(blocks) != 4 {
		t.Error(len(blocks), "examples")
	}
}
