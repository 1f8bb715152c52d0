//go:build !linux

package holdfast

import (
	"time"

	"holdfast.example/proto/clients/go/internal/core"
)

var began = time.Now()

// now is the time of a monotonic clock.
func now() core.Time { return time.Since(began) }
