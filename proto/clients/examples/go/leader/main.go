// Leader election with hand-over: three processes elect a leader. One kills the
// leader with SIGKILL, and the next one leads at once, with a larger epoch.
//
//	build/holdfastd --dev &
//	go -C proto/clients/examples/go run ./leader
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast.example/proto/clients/examples/go/nodes"
	holdfast "holdfast.example/proto/clients/go"
)

const election = "example/leader"

func main() { nodes.Main(node, demo) }

// node takes part in the election until ctx ends.
func node(ctx context.Context, broker, name string) error {
	c, err := holdfast.Dial(ctx, broker, holdfast.Name(name))
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Lead(ctx, election, func(ctx context.Context,
		lock *holdfast.Lock) error {
		// A leader gives its epoch to all that it writes to.
		fmt.Printf("%s leads, epoch %d\n", name, lock.Fence())
		<-ctx.Done()
		return context.Cause(ctx)
	}, holdfast.Note(name))
}

// demo kills the first leader, and tells how long the next one takes.
func demo(ctx context.Context, broker string) error {
	c, err := holdfast.Dial(ctx, broker)
	if err != nil {
		return err
	}
	defer c.Close()
	list, err := nodes.Start(3)
	if err != nil {
		return err
	}
	defer nodes.Stop(list)
	var first holdfast.Holder
	var killed time.Time
	for leader, err := range c.Watch(ctx, election) { // as any follower does
		switch {
		case err != nil:
			return err
		case !leader.Held:
			fmt.Println("followers: nobody leads")
		case first.Fence == 0:
			fmt.Printf("followers: %s leads, epoch %d: SIGKILL\n",
				leader.Note, leader.Fence)
			first, killed = leader, time.Now()
			if err := list[first.Note].Process.Kill(); err != nil {
				return err
			}
		case leader.Fence > first.Fence:
			fmt.Printf("followers: %s leads, epoch %d, %v after the kill\n",
				leader.Note, leader.Fence,
				time.Since(killed).Round(time.Millisecond))
			return nil
		}
	}
	return errors.New("the watch has ended")
}
