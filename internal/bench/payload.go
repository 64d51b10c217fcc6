package bench

import (
	"bytes"
	"strconv"
	"time"
)

// Size is the length of an event's payload in bytes.
const Size = 1024

// A payload begins with the moment it was published (nanoseconds since 1970, 19 digits) and its
// number (10 digits), at fixed places, so that the sink reads them without parsing JSON:
//
//	{"at":1764500000000000000,"n":0000000001x,"pad":"…"}
//
// The number is written as a string, since JSON knows no leading zeros.
const (
	atStart = len(`{"at":`)
	atLen   = 19
	nStart  = atStart + atLen + len(`,"n":"`)
	nLen    = 10
)

var template = func() []byte {
	head := `{"at":1000000000000000000,"n":"0000000000","pad":"`
	return append(append([]byte(head), bytes.Repeat([]byte{'x'}, Size-len(head)-2)...), `"}`...)
}()

// appendPayload appends event n's payload as published at the given moment.
func appendPayload(b []byte, n int64, at time.Time) []byte {
	start := len(b)
	b = append(b, template...)
	p := b[start:]
	strconv.AppendInt(p[atStart:atStart:atStart+atLen], at.UnixNano(), 10)
	for i, rest := nStart+nLen-1, n; i >= nStart; i-- {
		p[i] = byte('0' + rest%10)
		rest /= 10
	}
	return b
}

// readPayload returns what appendPayload wrote.
func readPayload(p []byte) (n int64, at time.Time, ok bool) {
	if len(p) != Size {
		return 0, time.Time{}, false
	}
	nanos, err1 := strconv.ParseInt(string(p[atStart:atStart+atLen]), 10, 64)
	n, err2 := strconv.ParseInt(string(p[nStart:nStart+nLen]), 10, 64)
	return n, time.Unix(0, nanos), err1 == nil && err2 == nil
}
