package holdfast

import (
	"syscall"
	"time"
	"unsafe"

	"holdfast.example/proto/clients/go/internal/core"
)

const clockBoottime = 7

// now is the time of a clock that goes on while the machine sleeps.
func now() core.Time {
	var at syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime,
		uintptr(unsafe.Pointer(&at)), 0)
	if errno != 0 {
		return time.Since(began)
	}
	return core.Time(at.Nano())
}

var began = time.Now()
