package signature

import (
	"encoding/base64"
	"net/http"
	"strings"
	"time"
)

func refuse(reason Reason, detail string) *Error { return &Error{Reason: reason, Detail: detail} }

// one is the header's value. Two different ones are refused: the reader behind may pick the other.
func one(header http.Header, name string) (string, error) {
	lines := values(header, name)
	if len(lines) == 0 || lines[0] == "" {
		return "", refuse(Missing, "there is no "+name)
	}
	for _, line := range lines[1:] {
		if line != lines[0] {
			return "", refuse(Malformed, "there are two values of "+name)
		}
	}
	return lines[0], nil
}

// within checks a signed time on both sides, in whole seconds: the sender's has no more.
func within(at, now time.Time, past, future time.Duration) (time.Time, error) {
	age := now.Unix() - at.Unix()
	switch {
	case age > int64(past/time.Second):
		return time.Time{}, refuse(TooOld, "the signature is right, but was made longer ago than "+past.String()+"; a replay, or a clock that is wrong")
	case -age > int64(future/time.Second):
		return time.Time{}, refuse(TooNew, "the signature is right, but its time is more than "+future.String()+" ahead; a clock is wrong")
	}
	return at.UTC(), nil
}

// checkID refuses ids with which a signature could be made to fit another cut of the same bytes
// ("msg_1"."100"."5.x" reads like "msg_1.100"."5"."x"), and those no log can show.
func checkID(id, header string) error {
	if len(id) > maxIDBytes {
		return refuse(Malformed, "the id in "+header+" is too long")
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || c == '.' {
			return refuse(Malformed, "the id in "+header+" has a character that an id cannot have")
		}
	}
	if id == "" {
		return refuse(Missing, "there is no "+header)
	}
	return nil
}

// decodeBase64 reads standard base64, padded or not.
func decodeBase64(text string) ([]byte, error) {
	return base64.RawStdEncoding.Strict().DecodeString(strings.TrimRight(text, "="))
}
