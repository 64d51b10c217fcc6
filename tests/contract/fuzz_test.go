package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// bodies are requests that succeed, for what chance would hardly find.
var bodies = map[string]string{
	"putTenant":             `{"name":"x","retry":{"max_attempts":3}}`,
	"patchTenant":           `{"metadata":{"plan":null,"seats":"5"}}`,
	"createEndpoint":        `{"url":"RECEIVER","event_types":["order.*"],"signing":{"schemes":["ed25519"]}}`,
	"putEndpoint":           `{"url":"RECEIVER","description":"x"}`,
	"patchEndpoint":         `{"description":"y","metadata":{"a":"b"}}`,
	"checkEndpoint":         `{"url":"RECEIVER"}`,
	"publishEvent":          `{"type":"payment.succeeded","payload":{"id":"pay_2"}}`,
	"publishBatch":          `{"events":[{"type":"payment.succeeded","payload":[]},{"type":"a.b","payload":null}]}`,
	"publishAcrossTenants":  `{"events":[{"tenant":"acme","type":"a.b","payload":1},{"tenant":"rival","type":"a.b","payload":2}]}`,
	"previewDelivery":       `{"type":"payment.succeeded","payload":{"id":1}}`,
	"rotateSecret":          `{"overlap_seconds":0}`,
	"createReplay":          `{"from":"2026-01-01T00:00:00Z","to":"2100-01-01T00:00:00Z","dry_run":true}`,
	"createCancellation":    `{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z","reason":"why"}`,
	"createPortalSession":   `{"permissions":["view"],"theme":{"mode":"dark","accent":"#112233"}}`,
	"createOperatorSession": `{"read_only":true}`,
	"createKey":             `{"name":"made","scopes":["read"],"tenant":"rival"}`,
	"putDispatch":           `{"state":"running","reason":""}`,
	"putEventType":          `{"description":"d","schema":{"type":"object"},"on_invalid":"refuse"}`,
	"putSignatureScheme":    `{"algorithm":"hmac-sha256","secret_encoding":"utf8","signed_content":"{body}","encoding":"hex","headers":{"X-Sig":"{signature}"}}`,
	"putSource":             `{"provider":"stripe","tenant":"acme","secrets":["whsec_a_secret_of_some_length"]}`,
	"addSourceSecret":       `{"secret":"a-third-secret-of-some-length"}`,
	"createErasure":         `{"metadata":{"order":"nobody's"}}`,
	"prune":                 `{"before":"2026-01-01T00:00:00Z"}`,
}

// unreached are operations that cannot answer with success here, each with its reason.
var unreached = map[string]string{
	"fetchPayload":    "its address is signed, in a thin delivery",
	"answerHandshake": "the provider here shakes no hands",
	"releaseRequest":  "nothing here is quarantined",
}

// request is one try of an operation.
type request struct {
	method, path string
	query        url.Values
	header       http.Header
	body         []byte
}

func (r *request) String() string {
	return fmt.Sprintf("%s %s?%s\n%v\n%.2000q", r.method, r.path, r.query.Encode(), r.header, r.body)
}

// segments are parts of a path that name nothing.
var segments = []string{
	"nobody", "waybill", "%00", "%0d%0aX:1", "a%2Fb", "%ff", "%F0%9F%92%A9", "%e2%80%ae", strings.Repeat("a", 65), strings.Repeat("b", 3000),
	"evt_", "ep_0", "evt_00000000000000000000000000", "dlv_zzzzzzzzzzzzzzzzzzzzzzzzzz", "ep_01m8qvgya9f5298j7139zshgfs", "null", "-1", "%7B%7D", "%22", "'", "A_b.c:d-1",
}

// make composes a request of an operation.
func (g *generator) make(o *operation) *request {
	r := &request{method: o.method, path: o.path, query: url.Values{}, header: http.Header{}}
	spare := map[string]string{}
	if g.oneIn(2) {
		spare = g.world.spare(o)
	}
	owner := pick(g, g.world.ids["tenant"])
	if g.oneIn(2) {
		owner = "acme"
	}
	for _, m := range regexp.MustCompile(`\{([a-z]+)\}`).FindAllStringSubmatch(o.path, -1) {
		known, value := g.world.ids[m[1]], ""
		switch {
		case spare[m[1]] != "":
			value = spare[m[1]]
		case len(known) == 0 || g.oneIn(8) || destroys(o):
			value = pick(g, segments)
		case m[1] == "tenant":
			value = owner
		default:
			value = pick(g, known) // of either tenant: half of them are another's
		}
		r.path = strings.Replace(r.path, m[0], value, 1)
	}
	for _, p := range o.parameters {
		name, schema := p["name"].(string), at(p, "schema")
		if p["in"] == "header" && g.oneIn(6) {
			r.header.Set("Idempotency-Key", pick(g, []string{"one", "two", strings.Repeat("k", 255), strings.Repeat("k", 256), "", "ü", "a b"}))
		}
		if p["in"] != "query" || !g.oneIn(4) {
			continue
		}
		switch {
		case name == "cursor" && len(g.world.cursors) > 0 && !g.oneIn(3):
			r.query.Add(name, pick(g, g.world.cursors)) // mostly of another list
		case g.oneIn(6):
			r.query.Add(name, pick(g, []string{"", "\x00", "-1", "251", "1e9", "null", "\xff", "☃", "2026-11-30", "9xx", "a,b", strings.Repeat("z", 4000)}))
		default:
			if schema["type"] == "array" {
				schema = at(schema, "items")
			}
			r.query.Add(name, plain(g.value(schema, name, 0)))
		}
		if g.oneIn(10) {
			r.query.Add(name, "twice")
		}
	}
	if g.oneIn(20) {
		r.query.Set("no_such_parameter", "1")
	}
	r.header.Set("Authorization", "Bearer "+g.world.keys[0])
	if g.oneIn(8) {
		r.header.Set("Authorization", "Bearer "+pick(g, g.world.keys))
	}
	if g.oneIn(25) {
		r.header.Set("Prefer", "handling=lenient")
	}
	if o.body != nil || g.oneIn(20) {
		g.fillBody(o, r)
	}
	if o.id == "receiveWebhook" && !g.oneIn(4) {
		signAsGitHub(r.header, r.body, fmt.Sprintf("delivery-%d", g.world.spares))
	}
	return r
}

func destroys(o *operation) bool { return o.method == http.MethodDelete }

func plain(v json.RawMessage) string {
	var text string
	if json.Unmarshal(v, &text) == nil {
		return text
	}
	return string(v)
}

func (g *generator) fillBody(o *operation, r *request) {
	r.header.Set("Content-Type", "application/json")
	good := strings.ReplaceAll(bodies[o.id], "RECEIVER", g.world.receiver)
	switch {
	case good != "" && g.oneIn(4):
		r.body = []byte(good)
	case o.body != nil:
		r.body = g.value(o.body, "", 0)
	default:
		r.body = pick(g, wrong)
	}
	switch g.IntN(40) {
	case 0:
		r.body = r.body[:g.IntN(len(r.body)+1)]
	case 1:
		r.body = append(slices.Clone(r.body), pick(g, []string{" ", "x", "{}", "\x00", "\xff"})...)
	case 2:
		r.body = slices.Clone(r.body)
		if len(r.body) > 0 {
			r.body[g.IntN(len(r.body))] = byte(g.IntN(256))
		}
	case 3:
		r.body = nil
	case 4:
		r.header.Set("Content-Type", pick(g, []string{"text/plain", "application/json; charset=latin1", "application/xml", ";", "application/merge-patch+json", "multipart/form-data"}))
	case 5:
		r.header.Set("Content-Encoding", "gzip")
	case 6:
		r.body = append([]byte("\xef\xbb\xbf"), r.body...)
	case 7:
		r.body = []byte(`{"x":"` + strings.Repeat("y", 2<<20) + `"}`)
	}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send sends a request. A stream is read no further than its beginning. Where the server says that
// it has no time it is asked again: how fast this machine is decides nothing.
func (w *world) send(o *operation, r *request) (*answer, error) {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
		a, err := w.once(ctx, o, r)
		cancel()
		if err != nil || a.status != http.StatusServiceUnavailable || o.id == "readyz" || time.Now().After(deadline) {
			return a, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (w *world) once(ctx context.Context, o *operation, r *request) (*answer, error) {
	address := w.base + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.Header = r.header.Clone()
	got, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	a := &answer{status: got.StatusCode, header: got.Header}
	if strings.HasPrefix(got.Header.Get("Content-Type"), "text/event-stream") {
		return a, nil
	}
	a.body, err = io.ReadAll(got.Body)
	return a, err
}

// wholeRequest are the codes of refusals that are about no single field.
var wholeRequest = []string{
	"invalid_json", "invalid_payload", "idempotency_mismatch", "payload_too_large", "batch_too_large", "endpoint_limit", "secret_limit", "job_too_large",
	"refused",
}

// judgeProblem holds an error answer to what api promises of all of them.
func judgeProblem(a *answer) error {
	var p struct {
		Type      string `json:"type"`
		Status    int    `json:"status"`
		Code      string `json:"code"`
		Detail    string `json:"detail"`
		RequestID string `json:"request_id"`
		Errors    []struct {
			Path   *string `json:"path"`
			Code   string  `json:"code"`
			Detail string  `json:"detail"`
		} `json:"errors"`
	}
	if err := json.Unmarshal(a.body, &p); err != nil {
		return err
	}
	switch {
	case a.header.Get("Content-Type") != "application/problem+json":
		return fmt.Errorf("its kind is %q", a.header.Get("Content-Type"))
	case p.Status != a.status || p.Code == "" || p.Detail == "" || !strings.HasSuffix(p.Type, "#"+p.Code):
		return fmt.Errorf("status, code, detail or type is wrong")
	case p.RequestID == "" || p.RequestID != a.header.Get("Waybill-Request-Id"):
		return fmt.Errorf("request id %q in the body, %q in the header", p.RequestID, a.header.Get("Waybill-Request-Id"))
	case a.status == 401 && p.Code != "invalid_signature" && a.header.Get("WWW-Authenticate") == "":
		return fmt.Errorf("401 without WWW-Authenticate")
	case (a.status == 429 || a.status == 503) && a.header.Get("Retry-After") == "":
		return fmt.Errorf("no Retry-After")
	case a.status == 422 && len(p.Errors) == 0 && !slices.Contains(wholeRequest, p.Code):
		return fmt.Errorf("%s names no field", p.Code)
	}
	for _, item := range p.Errors {
		if item.Path == nil || item.Code == "" || item.Detail == "" {
			return fmt.Errorf("an item of errors lacks path, code or detail")
		}
	}
	return nil
}

// tries is how many requests each operation gets.
const tries = 40

// Whatever is asked, the answer is one that the document declares: no 5xx, no status, member or
// word that is not described, and every error in the one shape.
func TestAPI_answersAsItsDocumentSays(t *testing.T) {
	for name, database := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "waybill.db") },
		"postgres": func(t *testing.T) string { return pgtest.DSN(t) },
	} {
		t.Run(name, func(t *testing.T) {
			customer := newReceiver(t)
			w := newWorld(t, database(t), customer)
			text, err := apiDocument()
			must(t, err)
			doc := readDocument(t, text)
			statuses := map[string]map[int]int{}
			for _, o := range doc.operations {
				statuses[o.id] = map[int]int{}
				w.resume()
				// Each operation has a seed of its own, so that a new one changes no other's requests.
				seed := fnv.New64a()
				seed.Write([]byte(o.id))
				g := &generator{Rand: rand.New(rand.NewPCG(seed.Sum64(), 1)), doc: doc, world: w}
				faults := 0
				for n := range tries {
					r := g.make(o)
					a, err := w.send(o, r)
					if err == nil {
						statuses[o.id][a.status]++
						err = w.judge(doc, o, a)
					}
					if err != nil {
						status, body := 0, []byte(nil)
						if a != nil {
							status, body = a.status, a.body
						}
						t.Errorf("%s, try %d: %v\n%s\nanswered %d %.2000s", o.id, n, err, r, status, body)
						if faults++; faults == 3 {
							break
						}
					}
				}
			}
			for _, o := range doc.operations {
				seen := slices.Sorted(maps.Keys(statuses[o.id]))
				if _, excused := unreached[o.id]; !excused && (len(seen) == 0 || seen[0] >= 300) {
					t.Errorf("%s never succeeded: %v", o.id, statuses[o.id])
				}
			}
			for line := range strings.Lines(w.log.String()) {
				if strings.Contains(line, "panic") || strings.Contains(line, `msg="request failed"`) {
					t.Errorf("the log has %.2000s", line)
				}
			}
			t.Logf("%d operations, %d requests each: %v", len(doc.operations), tries, totals(statuses))
		})
	}
}

func (w *world) judge(doc *document, o *operation, a *answer) error {
	if a.status >= 500 && o.id != "readyz" {
		return fmt.Errorf("a 5xx")
	}
	if err := doc.judge(o, a.status, a.header.Get("Content-Type"), a.body); err != nil {
		return err
	}
	if a.status >= 400 && o.id != "readyz" {
		return judgeProblem(a)
	}
	var list struct {
		Next string `json:"next_cursor"`
	}
	if json.Unmarshal(a.body, &list) == nil && list.Next != "" && len(w.cursors) < 200 {
		w.cursors = append(w.cursors, list.Next)
	}
	return nil
}

func totals(statuses map[string]map[int]int) map[int]int {
	sum := map[int]int{}
	for _, of := range statuses {
		for status, n := range of {
			sum[status] += n
		}
	}
	return sum
}
