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
