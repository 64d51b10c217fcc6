// Package columns is how the SQL stores write an event down, alike in both databases. Ids are
// bytes, because a provider's may hold what no text does; headers are JSON; a body that is there is
// never NULL.
package columns

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/receive"
)

// Key is source, account, id, place, id_digest.
func Key(k *receive.Key) []any {
	var digest []byte
	if k.Digest != [32]byte{} {
		digest = k.Digest[:]
	}
	return []any{k.Source, []byte(k.Account), []byte(k.ID), k.Index, OrNull(digest)}
}

// Record is topic, header, body, of, id_signed.
func Record(r *receive.Record) []any {
	body := r.Body
	if body == nil {
		body = []byte{} // NULL would say that there is none
	}
	return []any{Printable(r.Topic), header(r.Header), body, max(r.Of, 1), r.IDSigned}
}

func header(h http.Header) any {
	if len(h) == 0 {
		return nil
	}
	text, err := json.Marshal(h)
	if err != nil {
		panic(fmt.Sprintf("receive: header as JSON: %v", err)) // strings always marshal
	}
	return string(text)
}

// Reply is reply_status, reply_type, reply_body.
func Reply(r receive.Reply) []any {
	var status any
	if r.Status != 0 {
		status = r.Status
	}
	return []any{status, Text(r.ContentType), OrNull(r.Body)}
}

// OrNull is NULL for no bytes.
func OrNull(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

// Text is NULL for an empty text.
func Text(s string) any {
	if s == "" {
		return nil
	}
	return Printable(s)
}

// Printable is what a text column can hold: an error's text, or a provider's word, may be anything.
func Printable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Stored lists the columns that Row reads.
const Stored = `account, id, place, id_digest, topic, header, body, digest, of, id_signed`

// Row reads a record back.
type Row struct {
	account, id, idDigest, body, digest []byte
	place, of                           int
	topic                               string
	header                              *string
	signed                              bool
}

// Dest is where the columns of Stored go.
func (r *Row) Dest() []any {
	return []any{&r.account, &r.id, &r.place, &r.idDigest, &r.topic, &r.header, &r.body, &r.digest, &r.of, &r.signed}
}

// Record is the record without its times.
func (r *Row) Record(source string) (receive.Record, error) {
	out := receive.Record{
		Key:   receive.Key{Source: source, Account: string(r.account), ID: string(r.id), Index: r.place},
		Topic: r.topic, Body: slices.Clone(r.body), Of: r.of, IDSigned: r.signed,
	}
	copy(out.Key.Digest[:], r.idDigest)
	copy(out.Digest[:], r.digest)
	if r.header != nil {
		if err := json.Unmarshal([]byte(*r.header), &out.Header); err != nil {
			return out, fmt.Errorf("stored header: %w", err)
		}
	}
	return out, nil
}

// Answer reads a reply back.
type Answer struct {
	status *int
	kind   *string
	body   []byte
}

// Dest is where reply_status, reply_type and reply_body go.
func (a *Answer) Dest() []any { return []any{&a.status, &a.kind, &a.body} }

// Reply is the reply.
func (a *Answer) Reply() receive.Reply {
	out := receive.Reply{Body: slices.Clone(a.body)}
	if a.status != nil {
		out.Status = *a.status
	}
	if a.kind != nil {
		out.ContentType = *a.kind
	}
	return out
}
