package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The scenario lists looks at a large installation as people do: a tenant that has 95 % of
// everything, a small one, and the operator. It seeds as much as its time allows, at most
// maxSeeded attempts; a full run takes --duration 600s or so.
const (
	maxSeeded  = 10_000_000
	seedStep   = 50_000
	seedShare  = 0.4 // of the scenario's time
	pendingOne = 10  // every tenth event is still pending
	deadOne    = 500 // and one in so many ended dead, the older half of the time alone
	looks      = 40  // at each list
)

// lists seeds a database and measures what people wait for.
func lists(ctx context.Context, r *rig) (map[string]Figures, error) {
	if r.dsn == "" {
		return nil, nil // ten million rows are not for a SQLite file
	}
	began := time.Now()
	if err := r.customers(ctx, "lists", "hook", 2, "paused"); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, r.dsn)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	for _, statement := range []string{
		"SET synchronous_commit = off",
		"CREATE TEMPORARY TABLE seed (shard smallint, tenant bigint, endpoint uuid, url text, n bigint, at timestamptz, event uuid, dlv uuid, att uuid, type text, fate text)",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return nil, err
		}
	}
	seeded := int64(0)
	for seeded < maxSeeded && time.Since(began) < time.Duration(seedShare*float64(r.duration)) {
		if err := seed(ctx, conn, seeded, seedStep); err != nil {
			return nil, fmt.Errorf("seed: %w", err)
		}
		seeded += seedStep
	}
	// What autovacuum does within minutes; a bench has no minutes.
	if _, err := conn.Exec(ctx, "VACUUM (ANALYZE) waybill.event, waybill.attempt, waybill.delivery, waybill.dead_letter"); err != nil {
		return nil, err
	}
	l := &looker{rig: r, rows: seeded, end: began.Add(r.duration)}
	if err := l.signIn(ctx); err != nil {
		return nil, err
	}
	return l.lookAround(ctx)
}

// seed writes n events, each with a delivery: most delivered, some pending, a few dead. They are
// spread over the last 40 hours, in order. The first tenant gets 19 of 20.
func seed(ctx context.Context, conn *pgx.Conn, from, n int64) error {
	batch := &pgx.Batch{}
	batch.Queue(`TRUNCATE seed`)
	batch.Queue(`
		INSERT INTO seed
		SELECT e.shard, e.tenant, e.id, e.url, n, s.at,
			(s.ms || '7' || substr(md5('e' || n), 1, 19))::uuid, (s.ms || substr(md5('d' || n), 1, 20))::uuid, (s.ms || '7' || substr(md5('a' || n), 1, 19))::uuid,
			'order.' || (ARRAY['placed', 'paid', 'packed', 'sent'])[1 + n % 4],
			CASE WHEN n % $4 = 3 AND n < $5 / 2 THEN 'dead' WHEN n % $3 = 0 THEN 'pending' ELSE 'delivered' END
		FROM generate_series($1::bigint, $1::bigint + $2 - 1) AS n
		CROSS JOIN LATERAL (
			SELECT at, lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') AS ms
			FROM (SELECT date_trunc('milliseconds', clock_timestamp()) - interval '40 hours' * (1 - n::float8 / $5) AS at) AS t
		) AS s
		JOIN (
			SELECT e.*, row_number() OVER (ORDER BY t.key) AS place
			FROM waybill.endpoint AS e
			JOIN waybill.tenant AS t ON t.id = e.tenant
			WHERE t.key LIKE 'lists-%'
		) AS e ON e.place = CASE WHEN n % 20 = 7 THEN 2 ELSE 1 END`,
		from, n, pendingOne, deadOne, maxSeeded)
	batch.Queue(`
		INSERT INTO waybill.event (shard, tenant, id, type, payload, sha256, created_at)
		SELECT shard, tenant, event, type, convert_to('{"n":' || n || '}', 'UTF8'), sha256(convert_to(n::text, 'UTF8')), at
		FROM seed`)
	batch.Queue(`
		INSERT INTO waybill.attempt (shard, dlv, n, id, tenant, endpoint, event, event_type, sequence, round, trigger, outcome, final, at, ended_at, duration, url, kind, message, status_code,
			request_bytes, request_headers, response_headers, response_body, truncated)
		SELECT shard, dlv, 1, att, tenant, endpoint, event, type, n + 1, 0, 'schedule',
			CASE fate WHEN 'delivered' THEN 'delivered' WHEN 'dead' THEN 'permanent' ELSE 'transient' END, fate <> 'pending', at, CASE WHEN fate <> 'pending' THEN at END, 40000000 + n % 1000 * 100000, url,
			CASE WHEN fate <> 'delivered' THEN 'http_status' END, CASE WHEN fate <> 'delivered' THEN 'Your server answered with an error.' END,
			CASE fate WHEN 'delivered' THEN 200 WHEN 'dead' THEN 404 ELSE 503 END, 20, '[{"name":"Webhook-Id","value":"evt_"}]', '[{"name":"Content-Type","value":"text/plain"}]', '\x6f6b', false
		FROM seed`)
	batch.Queue(`
		INSERT INTO waybill.delivery (shard, dlv, tenant, endpoint, event, event_type, sequence, attempt, next_at, sendable_at)
		SELECT shard, dlv, tenant, endpoint, event, type, n + 1, 1, at + interval '1 hour', at
		FROM seed
		WHERE fate = 'pending'`)
	batch.Queue(`
		INSERT INTO waybill.dead_letter (shard, dlv, tenant, endpoint, event, event_type, sequence, round, attempt, state, reason, kind, message, sendable_at, at,
			last_id, last_at, last_duration, last_status, last_kind, last_message)
		SELECT shard, dlv, tenant, endpoint, event, type, n + 1, 0, 1, 'dead', 'permanent', 'http_status', 'Your server answered 404.', at, at, att, at, 40000000, 404, 'http_status', 'Your server answered 404.'
		FROM seed
		WHERE fate = 'dead'`)
	return conn.SendBatch(ctx, batch).Close()
}

// looker looks at lists and pages.
type looker struct {
	*rig
	rows    int64
	end     time.Time
	browser *http.Client
}

// signIn opens the dashboard as a browser would.
func (l *looker) signIn(ctx context.Context) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	l.browser = &http.Client{Jar: jar, Transport: l.client.Transport}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/sign-in", strings.NewReader(url.Values{"key": {l.key}}.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := l.browser.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("sign in to the dashboard: %s", resp.Status)
	}
	return nil
}

// look is one thing people wait for: a list of the API, or a page.
type look struct {
	name, path string
	page       bool
}

// lookAround measures each list and page, over and over, and gives the slowest of each kind.
func (l *looker) lookAround(ctx context.Context) (map[string]Figures, error) {
	old := time.Now().Add(-30 * time.Hour).UTC()
	span := "from=" + old.Format(time.RFC3339) + "&to=" + old.Add(time.Hour).Format(time.RFC3339)
	day := "from=" + old.Format(time.RFC3339) + "&to=" + old.Add(24*time.Hour).Format(time.RFC3339)
	var all []look
	for _, of := range []struct{ name, base string }{
		{"large tenant", "/v1/tenants/lists-0"}, {"small tenant", "/v1/tenants/lists-1"}, {"operator", "/v1"},
	} {
		for name, path := range map[string]string{
			"deliveries":            "/deliveries",
			"deliveries, dead":      "/deliveries?state=dead",
			"deliveries, pending":   "/deliveries?state=pending",
			"deliveries, 404":       "/deliveries?status_code=404",
			"deliveries, 5xx":       "/deliveries?status_code=5xx",
			"deliveries, of a type": "/deliveries?event_type=order.paid",
			"deliveries, no type":   "/deliveries?event_type=order.none",
			"deliveries, of a kind": "/deliveries?kind=http_status",
			"deliveries, an hour":   "/deliveries?" + span,
			"deliveries, oldest":    "/deliveries?order=asc",
			"deliveries, a day":     "/deliveries?" + day,
			"no type, of a day":     "/deliveries?order=asc&event_type=order.none&" + day,
			"pending, of no kind":   "/deliveries?state=pending&kind=timeout",
			"events":                "/events",
			"events, failed":        "/events?state=failed",
			"events, pending":       "/events?state=pending",
			"events, no type":       "/events?event_type=order.none",
			"events, an hour":       "/events?" + span,
			"events, a day":         "/events?" + day,
			"endpoints":             "/endpoints",
			"stats":                 "/stats",
		} {
			all = append(all, look{name: of.name + ": " + name, path: of.base + path})
		}
	}
	all = append(all,
		look{name: "overview", path: "/v1/overview"}, look{name: "search", path: "/v1/search?q=hook"}, look{name: "counts", path: "/v1/tenants/lists-0/deliveries/counts"},
		look{name: "counts, a day", path: "/v1/tenants/lists-0/deliveries/counts?" + day},
		look{name: "page: overview", path: "/", page: true}, look{name: "page: deliveries", path: "/deliveries", page: true}, look{name: "page: failed", path: "/deliveries?state=dead", page: true},
		look{name: "page: tenant", path: "/tenants/lists-0", page: true}, look{name: "page: customer", path: "/portal/lists-0/deliveries", page: true},
		look{name: "page: events", path: "/events", page: true})
	figures := map[string]Figures{}
	whole := &histogram{}
	slowest := Figures{Rows: l.rows}
	each := make([]histogram, len(all))
	for round := range looks {
		if round > 0 && time.Now().After(l.end) {
			break // each once at least, whatever the time
		}
		for i, look := range all {
			began := time.Now()
			if err := l.get(ctx, look); err != nil {
				return nil, fmt.Errorf("%s: %w", look.name, err)
			}
			each[i].add(time.Since(began))
			whole.add(time.Since(began))
		}
	}
	for i, look := range all {
		if p95 := milliseconds(each[i].quantile(0.95)); p95 > slowest.SlowestP95 {
			slowest.SlowestP95, slowest.Slowest = p95, look.name
		}
	}
	slowest.P50, slowest.P99 = milliseconds(whole.quantile(0.5)), milliseconds(whole.quantile(0.99))
	slowest.P95 = milliseconds(whole.quantile(0.95))
	figures["lists"] = slowest
	return figures, nil
}

func (l *looker) get(ctx context.Context, look look) error {
	if !look.page {
		return getJSON(ctx, l.client, l.url+look.path, l.key, nil)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url+look.path, nil)
	if err != nil {
		return err
	}
	resp, err := l.browser.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || strings.Contains(resp.Request.URL.Path, "sign-in") {
		return errors.New(resp.Status)
	}
	return nil
}
