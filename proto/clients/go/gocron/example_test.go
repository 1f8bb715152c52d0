package holdfastgocron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"
	holdfast "holdfast.example/proto/clients/go"
	holdfastgocron "holdfast.example/proto/clients/go/gocron"
)

func ExampleNewLocker() {
	c, _ := holdfast.Dial(context.Background(), address)
	defer c.Close()
	locker := holdfastgocron.NewLocker(c,
		holdfastgocron.AtLeast(5*time.Second))
	s, _ := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	defer s.Shutdown()
	done := make(chan bool)
	s.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(func() {
		lock := locker.Held("nightly")
		done <- lock.Check() == nil && lock.Fence() > 0
	}), gocron.WithName("nightly"),
		gocron.WithStartAt(gocron.WithStartImmediately()))
	s.Start()
	fmt.Println(<-done)
	// Output: true
}

func ExampleNewElector() {
	c, _ := holdfast.Dial(context.Background(), address)
	defer c.Close()
	elector := holdfastgocron.NewElector(c, "leader/jobs",
		holdfast.Note("host-7"))
	defer elector.Close()
	s, _ := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	defer s.Shutdown()
	runs := make(chan bool, 1)
	s.NewJob(gocron.DurationJob(20*time.Millisecond), gocron.NewTask(func() {
		select {
		case runs <- elector.Held() != nil:
		default: // enough for an example
		}
	}))
	s.Start()
	fmt.Println(<-runs)
	// Output: true
}
