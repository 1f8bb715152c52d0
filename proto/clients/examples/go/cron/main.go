// A scheduled job on three nodes that runs once each time. The nodes are
// processes with a gocron scheduler each, and a lock for each run.
//
//	build/holdfastd --dev &
//	go -C proto/clients/examples/go run ./cron
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"
	"holdfast.example/proto/clients/examples/go/nodes"
	holdfast "holdfast.example/proto/clients/go"
	holdfastgocron "holdfast.example/proto/clients/go/gocron"
)

const (
	job   = "example/report"
	every = 2 * time.Second
	runs  = 3
)

func main() { nodes.Main(node, demo) }

// node schedules the job until ctx ends.
func node(ctx context.Context, broker, name string) error {
	c, err := holdfast.Dial(ctx, broker, holdfast.Name(name))
	if err != nil {
		return err
	}
	defer c.Close()
	locker := holdfastgocron.NewLocker(c, holdfastgocron.Prefix(""),
		holdfastgocron.AtLeast(every*3/4),
		holdfastgocron.LockOptions(holdfast.Note(name)))
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return err
	}
	defer s.Shutdown()
	_, err = s.NewJob(gocron.CronJob("*/2 * * * * *", true),
		gocron.NewTask(func() {
			// A job gives its fence to all that it writes to.
			fmt.Printf("%s %s reports, fence %d\n",
				time.Now().Truncate(every).Format("15:04:05"), name,
				locker.Held(job).Fence())
		}), gocron.WithName(job))
	if err != nil {
		return err
	}
	s.Start()
	<-ctx.Done()
	return nil
}

// demo starts three nodes, and ends after some runs.
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
	seen := map[uint64]bool{}
	for holder, err := range c.Watch(ctx, job) {
		if err != nil {
			return err
		}
		if holder.Held {
			seen[holder.Fence] = true
		} else if len(seen) == runs {
			break
		}
	}
	return nil
}
