package bench

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"

	"github.com/waybill-dev/waybill/internal/keyring"
)

// underWay is how many events a throughput scenario keeps under way: enough that nothing idles,
// few enough that the run ends soon after its last event.
const underWay = 4000

// throughput is the load of a throughput scenario.
func throughput(r *rig, group string, batch, workers int) load {
	return load{Group: group, Tenants: tenants, Batch: batch, Workers: workers, Backlog: underWay, Duration: r.duration}
}

func throughputBatch(ctx context.Context, r *rig) (map[string]Figures, error) {
	if err := r.customers(ctx, "batch", "hook", tenants, "active"); err != nil {
		return nil, err
	}
	f, err := r.measure(ctx, throughput(r, "batch", 100, 4))
	return map[string]Figures{"throughput-batch": f}, err
}

func throughputSingle(ctx context.Context, r *rig) (map[string]Figures, error) {
	if err := r.customers(ctx, "single", "hook", tenants, "active"); err != nil {
		return nil, err
	}
	f, err := r.measure(ctx, throughput(r, "single", 1, 64))
	return map[string]Figures{"throughput-single": f}, err
}

// tenMillionADay is 10,000,000 / 86,400 s.
const tenMillionADay = 116

func paced(ctx context.Context, r *rig) (map[string]Figures, error) {
	figures := map[string]Figures{}
	for _, p := range []struct {
		name    string
		rate    float64
		workers int
	}{{"paced", tenMillionADay, 8}, {"paced-1000", 1000, 16}} {
		if err := r.customers(ctx, p.name, "hook", tenants, "active"); err != nil {
			return nil, err
		}
		f, err := r.measure(ctx, load{
			Group: p.name, Tenants: tenants, Batch: 1, Workers: p.workers, Rate: p.rate, Duration: r.duration / 2,
		})
		if err != nil {
			return nil, err
		}
		figures[p.name] = f
	}
	return figures, nil
}

// inbound is webhooks that arrive: verified, stored once each and answered, by the gateway alone where
// nobody subscribes, and delivered to the service behind it.
func inbound(ctx context.Context, r *rig) (map[string]Figures, error) {
	figures := map[string]Figures{}
	for _, part := range []struct{ name, state string }{
		{"inbound-gateway", "draft"}, // for which nothing is planned
		{"inbound", "active"},
	} {
		name := part.name
		if err := r.customers(ctx, name, "hook", tenants, part.state); err != nil {
			return nil, err
		}
		secret := "whsec_" + base64.StdEncoding.EncodeToString(keyring.NewKey())
		for i := range tenants {
			source := fmt.Sprintf("%s-%d", name, i)
			if err := callJSON(ctx, r.client, http.MethodPut, r.url+"/v1/sources/"+source, r.key, map[string]any{
				"provider": "standard-webhooks", "tenant": source, "event_type": "bench.event", "secrets": []string{secret},
			}, nil); err != nil {
				return nil, err
			}
		}
		l := throughput(r, name, 1, 64)
		l.Secret = secret
		var err error
		if part.state == "active" {
			figures[name], err = r.measure(ctx, l)
		} else {
			figures[name], err = r.answered(ctx, l)
		}
		if err != nil {
			return nil, err
		}
	}
	return figures, nil
}

// answered publishes to a group that nobody is behind, and counts what was taken.
func (r *rig) answered(ctx context.Context, l load) (Figures, error) {
	l.Leave, l.Backlog = true, 1<<40
	result, err := r.publish(ctx, l)
	if err != nil {
		return Figures{}, err
	}
	if result.Refused > 0 {
		return Figures{}, fmt.Errorf("%d of %d were refused", result.Refused, result.Published+result.Refused)
	}
	return Figures{
		PerSecond: float64(result.Published) / result.Elapsed.Seconds(),
		RSS:       peakRSS(r.servers[0].cmd.Process.Pid),
	}, nil
}
