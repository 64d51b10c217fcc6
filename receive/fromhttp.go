package receive

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
)

// FromHTTP makes a Handler of an http.Handler you already have. It is given a POST of the event's
// bytes with the request's header, but for its signature and authorization: those have been checked.
// Its 2xx is success, everything else a failure with that status in the error. In a Sync its answer
// is the answer, without its header but for the content type.
func FromHTTP(h http.Handler) Handler {
	return func(ctx context.Context, d *Delivery) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(d.Body))
		if err != nil {
			return err
		}
		req.Header = d.Header.Clone()
		req.RequestURI = "/"
		w := &kept{header: http.Header{}}
		h.ServeHTTP(w, req)
		switch {
		case w.status == 0:
			w.status = http.StatusOK
		case w.status < 200 || w.status > 299:
			return fmt.Errorf("receive: the handler answered %d", w.status)
		}
		if d.answered {
			return nil
		}
		return d.Answer(Reply{Status: w.status, ContentType: w.header.Get("Content-Type"), Body: w.body.Bytes()})
	}
}

// kept is an answer that is not sent yet.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *kept) Header() http.Header { return k.header }

func (k *kept) WriteHeader(status int) {
	if k.status == 0 {
		k.status = status
	}
}

func (k *kept) Write(p []byte) (int, error) {
	k.WriteHeader(http.StatusOK)
	if k.body.Len() <= MaxReply { // one byte more says that it is too large
		k.body.Write(p[:min(len(p), MaxReply+1-k.body.Len())])
	}
	return len(p), nil
}
