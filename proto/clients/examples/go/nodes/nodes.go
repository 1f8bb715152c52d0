// Package nodes has an example play several hosts: each is a process of the
// same program, with its name in -node.
package nodes

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
)

var (
	broker = flag.String("broker", "127.0.0.1:4653", "`addresses` of brokers")
	node   = flag.String("node", "", "be the node of this `name`")
)

// Main runs one node, or all of them.
func Main(one func(ctx context.Context, broker, name string) error,
	all func(ctx context.Context, broker string) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *node == "" {
		err = all(ctx, *broker)
	} else {
		go func() { // the parent's end of the pipe closes when it ends
			io.Copy(io.Discard, os.Stdin)
			stop()
		}()
		err = one(ctx, *broker, *node)
	}
	if err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// Start begins nodes with the names node-1, node-2 and so on. They end with
// this process, or by Stop.
func Start(count int) (map[string]*exec.Cmd, error) {
	list := map[string]*exec.Cmd{}
	program, err := os.Executable()
	for i := 1; err == nil && i <= count; i++ {
		name := fmt.Sprint("node-", i)
		cmd := exec.Command(program, "-broker", *broker, "-node", name)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if _, err = cmd.StdinPipe(); err == nil {
			err = cmd.Start()
		}
		if err == nil {
			list[name] = cmd
		}
	}
	if err != nil {
		Stop(list)
	}
	return list, err
}

// Stop kills the nodes.
func Stop(list map[string]*exec.Cmd) {
	for _, cmd := range list {
		cmd.Process.Kill()
		cmd.Wait()
	}
}
