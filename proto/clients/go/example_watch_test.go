//go:build go1.23

package holdfast_test

import (
	"context"
	"fmt"

	holdfast "holdfast.example/proto/clients/go"
)

func ExampleClient_Watch() {
	c, _ := holdfast.Dial(ctx, address)
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	serve := func(ctx context.Context, _ *holdfast.Lock) error {
		<-ctx.Done()
		return nil
	}
	redirect := func(held bool, leader string) {
		if held { // before that, nobody leads
			fmt.Println(leader)
			cancel()
		}
	}
	follow := func() error {
		go c.Lead(ctx, "leader/shop", serve, holdfast.Note("10.0.0.7:80"))
		for holder, err := range c.Watch(ctx, "leader/shop") {
			if err != nil {
				return err
			}
			redirect(holder.Held, holder.Note)
		}
		return nil
	}
	fmt.Println(follow())
	// Output:
	// 10.0.0.7:80
	// <nil>
}

// All workers, whenever one joins or leaves.
func ExampleClient_Members() {
	c, _ := holdfast.Dial(ctx, address)
	defer c.Close()
	c.Lock(ctx, "workers", holdfast.Shared(), holdfast.Note("w1"))
	for members, err := range c.Members(ctx, "workers") {
		if err != nil || len(members) == 2 {
			fmt.Println(members[1].Note, err)
			break
		}
		fmt.Println(members[0].Note)
		c.Lock(ctx, "workers", holdfast.Shared(), holdfast.Note("w2"))
	}
	// Output:
	// w1
	// w2 <nil>
}
