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

// inbound is webhooks that arrive: verified, stored once each, and delivered to the service behind.
func inbound(ctx context.Context, r *rig) (map[string]Figures, error) {
	const group = "inbound"
	if err := r.customers(ctx, group, "hook", tenants, "active"); err != nil {
		return nil, err
	}
	secret := "whsec_" + base64.StdEncoding.EncodeToString(keyring.NewKey())
	for i := range tenants {
		name := fmt.Sprintf("%s-%d", group, i)
		if err := callJSON(ctx, r.client, http.MethodPut, r.url+"/v1/sources/"+name, r.key, map[string]any{
			"provider": "standard-webhooks", "tenant": name, "event_type": "bench.event", "secrets": []string{secret},
		}, nil); err != nil {
			return nil, err
		}
	}
	l := throughput(r, group, 1, 64)
	l.Secret = secret
	f, err := r.measure(ctx, l)
	return map[string]Figures{"inbound": f}, err
}
