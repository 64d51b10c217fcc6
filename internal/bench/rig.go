package bench

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/waybill-dev/waybill/internal/keyring"
)

// rig is a server of a scenario's own, with its database, tenants and sink.
type rig struct {
	servers  []*process // one, but where nodes are compared
	sink     *sinkProcess
	env      []string // of a server, without its address
	url, key string   // of the first
	dsn      string   // "" for SQLite
	duration time.Duration
	client   *http.Client
}

// tenants is how many tenants a throughput scenario's events are spread over; each has one
// endpoint and the default cap of 10 attempts at once.
const tenants = 10

// onRig sets a scenario's rig up, runs it, and takes everything down again.
func onRig(ctx context.Context, s *sinkProcess, o Options, sc scenario) (figures map[string]Figures, err error) {
	// Far more than any takes, its own set-up included.
	ctx, cancel := context.WithTimeout(ctx, 5*o.Duration+time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "waybill-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	dsn := "sqlite://" + filepath.Join(dir, "bench.db")
	if o.DatabaseURL != "" {
		var drop func() error
		dsn, drop, err = makeDatabase(ctx, o.DatabaseURL)
		if err != nil {
			return nil, err
		}
		defer func() {
			if dropErr := drop(); err == nil {
				err = dropErr
			}
		}()
	}
	r := &rig{sink: s, key: "bench-" + rand.Text(), duration: o.Duration, client: newClient(8)}
	r.env = []string{
		"WAYBILL_DATABASE_URL=" + dsn,
		"WAYBILL_API_KEY=" + r.key,
		"WAYBILL_ENCRYPTION_KEY=" + base64.StdEncoding.EncodeToString(keyring.NewKey()),
		"WAYBILL_EGRESS_ALLOW=127.0.0.0/8",
		"WAYBILL_LOG=json",
	}
	if o.DatabaseURL != "" {
		r.dsn = dsn
	}
	defer func() {
		for _, server := range r.servers {
			if stopErr := server.stop(); err == nil {
				err = stopErr
			}
		}
	}()
	if err := r.addServer(ctx); err != nil {
		return nil, err
	}
	if err := s.reset(ctx); err != nil {
		return nil, err
	}
	return sc.run(ctx, r)
}

// addServer starts one more node on the rig's database and waits until it is ready.
func (r *rig) addServer(ctx context.Context) error {
	listen, err := freeAddress()
	if err != nil {
		return err
	}
	server, err := startProcess(ctx, append([]string{"WAYBILL_LISTEN=" + listen}, r.env...), nil, nil, "serve")
	if err != nil {
		return err
	}
	r.servers = append(r.servers, server)
	if r.url == "" {
		r.url = "http://" + listen
	}
	return r.ready(ctx, "http://"+listen, server)
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (r *rig) ready(ctx context.Context, url string, server *process) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := getJSON(ctx, r.client, url+"/readyz", "", nil)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server does not get ready: %w: %s", err, lastLines(server.stderr.String(), 5))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// customers makes n tenants of a group, each with one endpoint at the sink that behaves as named.
func (r *rig) customers(ctx context.Context, group, behaviour string, n int, state string) error {
	for i := range n {
		tenant := fmt.Sprintf("%s/v1/tenants/%s-%d", r.url, group, i)
		if err := callJSON(ctx, r.client, http.MethodPut, tenant, r.key, map[string]any{}, nil); err != nil {
			return err
		}
		if err := r.endpoint(ctx, group, i, map[string]any{
			"url":   fmt.Sprintf("%s/%s/%s/%d", r.sink.url, behaviour, group, i),
			"state": state,
		}); err != nil {
			return err
		}
	}
	return nil
}

// endpoint makes or changes the endpoint of a group's tenant.
func (r *rig) endpoint(ctx context.Context, group string, i int, fields map[string]any) error {
	url := fmt.Sprintf("%s/v1/tenants/%s-%d/endpoints/sink", r.url, group, i)
	return callJSON(ctx, r.client, http.MethodPut, url, r.key, fields, nil)
}

// publish runs a publisher to its end.
func (r *rig) publish(ctx context.Context, l load) (loadResult, error) {
	l.URL, l.Key, l.Sink = r.url, r.key, r.sink.url
	var result loadResult
	if err := runChild(ctx, RolePublisher, l, &result); err != nil {
		arrived, _ := r.sink.stats(ctx, l.Group)
		return result, fmt.Errorf("%w; the sink has %d; still pending: %s; server: %s",
			err, arrived.Distinct, r.pending(ctx), lastLines(r.servers[0].stderr.String(), 5))
	}
	return result, nil
}

// measure publishes to a group, waits until all of it has arrived and is recorded, and sums up.
func (r *rig) measure(ctx context.Context, l load) (Figures, error) {
	before, err := r.sink.stats(ctx, l.Group)
	if err != nil {
		return Figures{}, err
	}
	if before.Distinct > 0 {
		return Figures{}, fmt.Errorf("group %s was measured before", l.Group)
	}
	result, err := r.publish(ctx, l)
	if err != nil {
		return Figures{}, err
	}
	begin := time.Now()
	if err := r.recorded(ctx, l); err != nil {
		return Figures{}, err
	}
	stats, err := r.sink.stats(ctx, l.Group)
	if err != nil {
		return Figures{}, err
	}
	if stats.Distinct != result.Published {
		return Figures{}, fmt.Errorf("published %d events, %d arrived", result.Published, stats.Distinct)
	}
	elapsed := result.Elapsed + time.Since(begin)
	f := Figures{PerSecond: float64(result.Published) / elapsed.Seconds(), P50: stats.P50, P99: stats.P99}
	for _, server := range r.servers {
		f.RSS = max(f.RSS, peakRSS(server.cmd.Process.Pid))
	}
	return f, nil
}

// recorded waits until no delivery of the load's tenants is pending: everything that arrived is in
// the database.
func (r *rig) recorded(ctx context.Context, l load) error {
	for i := range l.Tenants {
		url := fmt.Sprintf("%s/v1/deliveries?state=pending&limit=1&tenant=%s-%d", r.url, l.Group, i)
		for {
			var list struct {
				Data []struct{} `json:"data"`
			}
			if err := getJSON(ctx, r.client, url, r.key, &list); err != nil {
				return err
			}
			if len(list.Data) == 0 {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	return nil
}

// routed waits until the newest event of a tenant has its delivery, and with it all before it.
func (r *rig) routed(ctx context.Context, tenant string) error {
	type list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	events := r.url + "/v1/tenants/" + tenant + "/events"
	var newest list
	if err := getJSON(ctx, r.client, events+"?limit=1", r.key, &newest); err != nil || len(newest.Data) == 0 {
		return err
	}
	for {
		var deliveries list
		if err := getJSON(ctx, r.client, events+"/"+newest.Data[0].ID+"/deliveries", r.key, &deliveries); err != nil {
			return err
		}
		if len(deliveries.Data) > 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// pending describes a few deliveries that are still pending, for an error that explains itself.
func (r *rig) pending(ctx context.Context) json.RawMessage {
	var list json.RawMessage
	if err := getJSON(ctx, r.client, r.url+"/v1/deliveries?state=pending&limit=3", r.key, &list); err != nil {
		return json.RawMessage(err.Error())
	}
	return list
}
