package attempt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// quiet are errors whose text is the same whoever caused them.
var quiet = []error{io.ErrUnexpectedEOF, io.EOF, context.DeadlineExceeded, context.Canceled, os.ErrDeadlineExceeded}

// causeOf tells the log what an attempt failed of. The texts of other errors quote what the receiver
// sent, or its certificate says: of those only the type is told.
func causeOf(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	for _, known := range quiet {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return fmt.Sprintf("%T", err)
}
